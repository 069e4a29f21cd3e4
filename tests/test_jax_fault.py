"""A JAX that returns wrong numbers must not pass unnoticed.

JAX 0.10.1 was right in every float64 case tried, and float64 is the precision of this library. In float32,
0.10.1 too gets a plain sum, mean or maximum of a 3-column product wrong from row 32768 on, for batches such
as 32769 and 40000.
"""

import pytest

from optlearn._theory.expectation import wrong_rows


@pytest.mark.parametrize("batch", [16385, 20000, 32769])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("activation", ["positive", "square", "tanh"])
def test_batched_matvec_and_reduction(batch, size, activation):
    assert wrong_rows(batch, size, activation) == 0
