"""Ready learning models: the loss, the data and the closed forms of each; nothing about solving."""

from optlearn.models.activations import ACTIVATIONS, Activation
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
from optlearn.models.curriculum import Curriculum, curriculum

__all__ = [
    "ACTIVATIONS",
    "FIG3_OMEGA",
    "FIG3_START",
    "FIGS_OMEGA",
    "FIGS_START",
    "Activation",
    "Autoencoder",
    "Committee",
    "Curriculum",
    "autoencoder",
    "committee",
    "curriculum",
    "optimal_skip",
]
