"""A wrong argument gets a sentence that names it, its value and what is allowed."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn.models import autoencoder, committee, curriculum, optimal_skip

BAD = [
    (curriculum, {"Delta": (0.0, -2.0)}, r"curriculum\(Delta=.*-2.*at least 0"),
    (curriculum, {"Delta": (0.0, 1.0, 2.0)}, r"Delta=.*must be 2 numbers"),
    (curriculum, {"Delta": 2.0}, r"Delta=2.0.*must be 2 numbers"),
    (curriculum, {"Delta": ("easy", "hard")}, r"Delta=\('easy', 'hard'\).*2 numbers"),
    (curriculum, {"T": -1.0}, r"T=-1.0.*above 0"),
    (curriculum, {"T": 0.0}, r"T=0.0.*above 0"),
    (curriculum, {"T": (1.0, 2.0)}, r"T=\(1.0, 2.0\).*above 0"),
    (curriculum, {"eta": -3}, r"eta=-3.*at least 0"),
    (curriculum, {"eta": np.nan}, r"eta=nan.*at least 0"),
    (curriculum, {"eta": "fast"}, r"eta='fast'.*at least 0"),
    (curriculum, {"weight_decay": -0.1}, r"weight_decay=-0.1.*at least 0"),
    (curriculum, {"easy_share": 1.5}, r"easy_share=1.5.*from 0 to 1"),
    (committee, {"K": 0}, r"committee\(K=0.*whole number of at least 1"),
    (committee, {"K": 2.0}, r"K=2.0.*whole number"),
    (committee, {"K": True}, r"K=True.*whole number"),
    (committee, {"M": -1}, r"M=-1.*whole number of at least 1"),
    (committee, {"T": -1.0}, r"T=-1.0.*positive semidefinite"),
    (committee, {"M": 2, "T": [[1.0, 2.0], [2.0, 1.0]]}, r"T=.*positive semidefinite.*eigenvalue"),
    (committee, {"M": 2, "T": [[1.0, 0.5], [0.2, 1.0]]}, r"T=.*symmetric"),
    (committee, {"M": 2, "T": np.eye(3)}, r"T=.*2 by 2"),
    (committee, {"activation": "tanh"}, r"activation='tanh'.*known: erf, linear, relu"),
    (committee, {"teacher_activation": 3}, r"teacher_activation=3.*known: erf, linear, relu"),
    (committee, {"sigma_n": -0.3}, r"sigma_n=-0.3.*at least 0"),
    (committee, {"eta": -1.0}, r"eta=-1.0.*at least 0"),
    (committee, {"batch": 0.5}, r"batch=0.5.*at least 1"),
    (committee, {"weight_decay": np.inf}, r"weight_decay=inf.*at least 0"),
    (committee, {"dropout": "yes"}, r"dropout='yes'.*True or False"),
    (committee, {"dropout": True, "activation_probability": 1.2}, r"=1.2.*from 0 to 1"),
    (committee, {"dropout": True, "rescaling": -0.1}, r"rescaling=-0.1.*at least 0"),
    (committee, {"activation_probability": 0.5}, r"activation_probability=0.5.*dropout=True"),
    (committee, {"rescaling": 0.5}, r"rescaling=0.5.*dropout=True"),
    (committee, {"heads": -1}, r"heads=-1.*at least 0"),
    (committee, {"heads": 2}, r"teacher_readout=None.*2 heads and 1 teachers.*1 by 2"),
    (committee, {"heads": 2, "M": 2, "task_share": (0.5, 0.6)}, r"task_share=.*2 prob.*sum to 1"),
    (committee, {"heads": 2, "M": 2, "test_share": (1.0,)}, r"test_share=.*2 prob.*sum to 1"),
    (committee, {"heads": 1, "readout_rate": -1.0}, r"readout_rate=-1.0.*at least 0"),
    (committee, {"task_share": (1.0,)}, r"task_share=.*heads of at least 1"),
    (committee, {"teacher_readout": np.ones((2, 2))}, r"teacher_readout=.*1 by 1"),
    (autoencoder, {"K": 0}, r"autoencoder\(K=0.*whole number"),
    (autoencoder, {"Omega": [[1.0, 2.0], [2.0, 1.0]]}, r"Omega=.*positive semidefinite"),
    (autoencoder, {"Omega": 1.0}, r"Omega=1.0.*matrix"),
    (autoencoder, {"sigma": -0.1}, r"sigma=-0.1.*at least 0"),
    (autoencoder, {"sigma": (0.1, 0.2, 0.3)}, r"sigma=.*2 numbers"),
    (autoencoder, {"N": 0}, r"N=0.*above 0"),
    (autoencoder, {"activation": "sign"}, r"activation='sign'.*known: erf, linear, relu"),
    (autoencoder, {"eta": -5.0}, r"eta=-5.0.*at least 0"),
    (autoencoder, {"skip_rate": -5.0}, r"skip_rate=-5.0.*at least 0"),
    (autoencoder, {"noise": 1.1}, r"noise=1.1.*from 0 to 1"),
    (autoencoder, {"test_noise": -0.1}, r"test_noise=-0.1.*from 0 to 1"),
    (autoencoder, {"cluster_probabilities": (0.5, 0.6)}, r"cluster_probabilities=.*sum to 1"),
    (autoencoder, {"cluster_probabilities": (-0.5, 1.5)}, r"cluster_probabilities=.*sum to 1"),
    (autoencoder, {"trained_skip": None}, r"trained_skip=None.*True or False"),
    (autoencoder, {"augmentation": 5}, r"augmentation=5.*True or False"),
    (autoencoder, {"batch": 5}, r"batch=5.*augmentation=True"),
    (autoencoder, {"augmentation": True, "batch": 0}, r"batch=0.*at least 1"),
    (autoencoder, {"finite_size": 1}, r"finite_size=1.*True or False"),
]


@pytest.mark.parametrize(
    ("factory", "arguments", "message"),
    BAD,
    ids=[f"{f.__name__}-{'-'.join(a)}-{i}" for i, (f, a, _) in enumerate(BAD)],
)
def test_a_wrong_argument_is_named(factory, arguments, message):
    with pytest.raises(SpecificationError, match=message):
        factory(**arguments)


def test_optimal_skip_needs_probabilities_of_all_clusters():
    with pytest.raises(SpecificationError, match=r"cluster_probabilities=.*2 probabilities"):
        optimal_skip(0.3, (0.1, 0.2), (0.5, 0.4))


@pytest.mark.parametrize("factory", [curriculum, committee, autoencoder])
def test_an_unknown_parameter_is_named(factory):
    with pytest.raises(SpecificationError, match="no parameter 'temperature'"):
        factory().settings({"temperature": 1.0})
