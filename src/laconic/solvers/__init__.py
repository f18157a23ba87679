"""Solvers: from a code back to the sparse update behind it.

sparse  `Adjoint` and `Fista`: from DCT coefficients back to an update
"""
