"""Strict numerics for every test: 64 bits, no silent promotion of dtypes or ranks."""

import jax
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("optlearn", derandomize=True, deadline=None)
settings.load_profile("optlearn")
