"""What several scenarios share: random starts, and the usual schedules of rates and batch sizes.

A name loads its module, and with it the solvers, when it is first used, so that a scenario's file is
cheap to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
