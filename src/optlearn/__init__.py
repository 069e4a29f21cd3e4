"""Optimal learning protocols for networks described exactly by a few order parameters.

Importing this package is cheap: a public name loads its module, and with it JAX or CasADi, when it is
first used. The names and their modules are in ``__init__.pyi``, for type checkers and the interpreter alike.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
