from . import fit as fit
from .attribute import AttributeScheduler as AttributeScheduler
from .to_torch import CurriculumSampler as CurriculumSampler
from .to_torch import ScheduledDropout as ScheduledDropout
