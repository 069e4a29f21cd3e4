"""From theory to practice: schedules in one's own training, the model fitted to data, real training.

Frameworks are imported only by the names that need them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
