"""Laws of loss curves: from the logs of any network to its best learning-rate schedule.

A law is fitted to logs of step, learning rate and loss, and is then one more system to be controlled.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
