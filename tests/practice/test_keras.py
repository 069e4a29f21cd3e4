"""A schedule in Keras, in a process of its own: the choice of a backend is for good."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

# Two fits of one epoch each; plain SGD of a linear network without Keras must give the same weights.
CODE = """
import json, keras, numpy as np, optlearn as ol

schedule = ol.Schedule.piecewise([0, 1, 3, 4], {"learning_rate": [0.1, 0.2, 0.05]})
x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
y = (x @ [[1.0], [2.0], [3.0]]).astype("float32")
layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
model = keras.Sequential([keras.layers.Input((3,)), layer])
model.compile(keras.optimizers.SGD(1.0), loss="mse")
callback = schedule.to_keras(steps=10)
for _ in range(2):
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[callback])
w, rates = np.zeros((3, 1)), callback.table.all()
for step in range(10):
    part = slice(4 * (step % 5), 4 * (step % 5) + 4)
    w -= rates[step] * 2 * x[part].T @ (x[part] @ w - y[part]) / 4
print(json.dumps([model.get_weights()[0].ravel().tolist(), w.ravel().tolist(), rates.tolist()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("keras") is None, reason="needs the extra keras")
def test_fit_makes_the_steps_of_the_schedule(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    found, expected, rates = json.loads(done.stdout.splitlines()[-1])
    assert rates == [0.1] * 3 + [0.2] * 5 + [0.05] * 2
    assert found == pytest.approx(expected, abs=1e-6)
