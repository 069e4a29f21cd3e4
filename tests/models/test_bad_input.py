"""A wrong argument gets a sentence that names it, its value and what is allowed."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn.models import autoencoder, committee, curriculum, optimal_skip

BAD = [
    (curriculum, {"Delta": (0.0, -2.0)}, r"curriculum: Delta .*at least 0.*-2"),
    (curriculum, {"Delta": (0.0, 1.0, 2.0)}, r"Delta .*must be 2 numbers"),
    (curriculum, {"Delta": 2.0}, r"Delta must be a list of numbers, got 2.0"),
    (curriculum, {"Delta": ("easy", "hard")}, r"Delta must be a list of numbers, got \('easy', 'hard'\)"),
    (curriculum, {"T": -1.0}, r"T .*above 0.*, got -1.0"),
    (curriculum, {"T": 0.0}, r"T .*above 0.*, got 0.0"),
    (curriculum, {"T": (1.0, 2.0)}, r"T must be one number, above 0, got \(1.0, 2.0\)"),
    (curriculum, {"eta": -3}, r"eta .*at least 0.*, got -3"),
    (curriculum, {"eta": np.nan}, r"eta must be a finite number, got nan"),
    (curriculum, {"eta": "fast"}, r"eta must be a finite number, got 'fast'"),
    (curriculum, {"weight_decay": -0.1}, r"weight_decay .*at least 0.*, got -0.1"),
    (curriculum, {"easy_share": 1.5}, r"easy_share .*from 0 to 1.*, got 1.5"),
    (committee, {"K": 0}, r"committee: K .*whole number of at least 1.*, got 0"),
    (committee, {"K": 2.0}, r"K .*whole number.*, got 2.0"),
    (committee, {"K": True}, r"K .*whole number.*, got True"),
    (committee, {"M": -1}, r"M .*whole number of at least 1.*, got -1"),
    (committee, {"T": -1.0}, r"T .*positive semidefinite.*, got -1.0"),
    (committee, {"M": 2, "T": [[1.0, 2.0], [2.0, 1.0]]}, r"T .*positive semidefinite.*eigenvalue"),
    (committee, {"M": 2, "T": [[1.0, 0.5], [0.2, 1.0]]}, r"T .*symmetric"),
    (committee, {"M": 2, "T": np.eye(3)}, r"T .*2 by 2"),
    (committee, {"activation": "tanh"}, r"activation .*must be one of erf, linear, relu.*, got 'tanh'"),
    (committee, {"teacher_activation": 3}, r"teacher_activation must be text or None, got 3"),
    (committee, {"sigma_n": -0.3}, r"sigma_n .*at least 0.*, got -0.3"),
    (committee, {"eta": -1.0}, r"eta .*at least 0.*, got -1.0"),
    (committee, {"batch": 0.5}, r"batch .*at least 1.*, got 0.5"),
    (committee, {"weight_decay": np.inf}, r"weight_decay must be a finite number, got inf"),
    (committee, {"dropout": "yes"}, r"dropout .*True or False.*, got 'yes'"),
    (
        committee,
        {"dropout": True, "activation_probability": 1.2},
        "activation_probability must be from 0 to 1, got 1.2",
    ),
    (committee, {"dropout": True, "rescaling": -0.1}, r"rescaling .*at least 0.*, got -0.1"),
    (committee, {"activation_probability": 0.5}, r"activation_probability .*dropout=True.*, got 0.5"),
    (committee, {"rescaling": 0.5}, r"rescaling .*dropout=True.*, got 0.5"),
    (committee, {"heads": -1}, r"heads .*at least 0.*, got -1"),
    (committee, {"heads": 2}, r"teacher_readout .*1 by 2.*2 heads and 1 teachers, got None"),
    (committee, {"heads": 2, "M": 2, "task_share": (0.5, 0.6)}, r"task_share .*2 prob.*sum to 1"),
    (committee, {"heads": 2, "M": 2, "test_share": (1.0,)}, r"test_share .*2 prob.*sum to 1"),
    (committee, {"heads": 1, "readout_rate": -1.0}, r"readout_rate .*at least 0.*, got -1.0"),
    (committee, {"task_share": (1.0,)}, r"task_share .*heads of at least 1"),
    (committee, {"teacher_readout": np.ones((2, 2))}, r"teacher_readout .*1 by 1"),
    (autoencoder, {"K": 0}, r"autoencoder: K .*whole number.*, got 0"),
    (autoencoder, {"Omega": [[1.0, 2.0], [2.0, 1.0]]}, r"Omega .*positive semidefinite"),
    (autoencoder, {"Omega": 1.0}, r"Omega .*matrix.*, got 1.0"),
    (autoencoder, {"sigma": -0.1}, r"sigma .*at least 0.*, got -0.1"),
    (autoencoder, {"sigma": (0.1, 0.2, 0.3)}, r"sigma .*2 numbers"),
    (autoencoder, {"N": 0}, r"N .*above 0.*, got 0"),
    (autoencoder, {"activation": "sign"}, r"activation .*must be one of erf, linear, relu.*, got 'sign'"),
    (autoencoder, {"eta": -5.0}, r"eta .*at least 0.*, got -5.0"),
    (autoencoder, {"skip_rate": -5.0}, r"skip_rate .*at least 0.*, got -5.0"),
    (autoencoder, {"noise": 1.1}, r"noise .*from 0 to 1.*, got 1.1"),
    (autoencoder, {"test_noise": -0.1}, r"test_noise .*from 0 to 1.*, got -0.1"),
    (autoencoder, {"cluster_probabilities": (0.5, 0.6)}, r"cluster_probabilities .*sum to 1"),
    (autoencoder, {"cluster_probabilities": (-0.5, 1.5)}, r"cluster_probabilities .*sum to 1"),
    (autoencoder, {"trained_skip": None}, r"trained_skip .*True or False.*, got None"),
    (autoencoder, {"augmentation": 5}, r"augmentation .*True or False.*, got 5"),
    (autoencoder, {"batch": 5}, r"batch .*augmentation=True.*, got 5"),
    (autoencoder, {"augmentation": True, "batch": 0}, r"batch .*at least 1.*, got 0"),
    (autoencoder, {"finite_size": 1}, r"finite_size .*True or False.*, got 1"),
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
    with pytest.raises(SpecificationError, match=r"cluster_probabilities .*2 probabilities"):
        optimal_skip(0.3, (0.1, 0.2), (0.5, 0.4))


@pytest.mark.parametrize("factory", [curriculum, committee, autoencoder])
def test_an_unknown_parameter_is_named(factory):
    with pytest.raises(SpecificationError, match="no parameter 'temperature'"):
        factory().settings({"temperature": 1.0})
