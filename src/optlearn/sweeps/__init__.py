"""Many problems: a scenario solved, or simulated, on a grid of its arguments.

``ol.sweep`` solves them. ``load`` reads what is finished, ``plot`` draws it, ``simulate`` runs simulations in
batches, and ``finite_size`` measures how they approach the theory.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
