"""Ready learning models: the loss, the data and the closed forms of each; nothing about solving."""

from optlearn.models.activations import ACTIVATIONS, Activation
from optlearn.models.attention import Attention, attention
from optlearn.models.autoencoder import (
    FIG3_OMEGA,
    FIG3_START,
    FIGS_OMEGA,
    FIGS_START,
    Autoencoder,
    autoencoder,
    optimal_skip,
)
from optlearn.models.committee import Committee, committee
from optlearn.models.continual import Continual, continual
from optlearn.models.curriculum import Curriculum, curriculum
from optlearn.models.gating import Gating, gating
from optlearn.models.imbalance import Imbalance, imbalance

__all__ = [
    "ACTIVATIONS",
    "FIG3_OMEGA",
    "FIG3_START",
    "FIGS_OMEGA",
    "FIGS_START",
    "Activation",
    "Attention",
    "Autoencoder",
    "Committee",
    "Continual",
    "Curriculum",
    "Gating",
    "Imbalance",
    "attention",
    "autoencoder",
    "committee",
    "continual",
    "curriculum",
    "gating",
    "imbalance",
    "optimal_skip",
]
