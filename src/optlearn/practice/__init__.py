"""From theory to practice: schedules in your own training, models fitted to data, real training.

A framework is imported only when a name that needs it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
