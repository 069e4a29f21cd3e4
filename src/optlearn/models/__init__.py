"""Ready learning models: the loss, the data and the closed forms of each; nothing about solving."""

from optlearn.models._activations import ACTIVATIONS, Activation
from optlearn.models._attention import Attention, attention
from optlearn.models._autoencoder import (
    FIG3_OMEGA,
    FIG3_START,
    FIGS_OMEGA,
    FIGS_START,
    Autoencoder,
    autoencoder,
    optimal_skip,
)
from optlearn.models._committee import Committee, committee
from optlearn.models._continual import Continual, continual
from optlearn.models._curriculum import Curriculum, curriculum
from optlearn.models._gating import Gating, gating
from optlearn.models._imbalance import Imbalance, imbalance

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
