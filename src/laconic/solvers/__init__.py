"""Solvers: from a code back to the sparse update behind it."""
