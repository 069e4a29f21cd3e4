from ._curves import Curve as Curve
from ._fit import LawFit as LawFit
from ._fit import LawWarning as LawWarning
from ._fit import fit as fit
from ._pilot import next_pilot as next_pilot
from ._readers import read_curves as read_curves
from ._system import LossLaw as LossLaw
