"""What each JAX primitive means on CasADi expressions; `optlearn._casadi.trace` uses it.

`values` holds the data types and `numeric` the evaluation on plain numbers. The other modules hold
operations by the name of the primitive: `moving`, `indexing` and `loops` for numbers and symbols alike,
`elementwise`, `reductions` and `linalg` for symbols. `unknown` stands in for missing ones.
"""
