from . import fit as fit
from .attribute import AttributeScheduler as AttributeScheduler
from .curriculum_sampler import CurriculumLoader as CurriculumLoader
from .curriculum_sampler import CurriculumSampler as CurriculumSampler
from .steps import OtherScheduleWarning as OtherScheduleWarning
from .steps import UnitsWarning as UnitsWarning
from .to_torch import ScheduledDropout as ScheduledDropout
