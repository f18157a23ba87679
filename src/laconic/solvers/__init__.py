"""Solvers: reconstruct a sparse update from its code.

sparse  `Adjoint` and `Fista`: from DCT coefficients back to an update
"""
