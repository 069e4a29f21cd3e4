"""Ready learning models: the loss, the data and the closed forms of each; nothing about solving.

As in ``optlearn`` itself, a name loads its module, and with it JAX, when it is first used; they are listed in
``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
