from ._control import LossLaw as LossLaw
from ._control import next_pilot as next_pilot
from ._curves import Curve as Curve
from ._curves import LawWarning as LawWarning
from ._fit import LawFit as LawFit
from ._fit import fit as fit
from ._readers import read_curves as read_curves
