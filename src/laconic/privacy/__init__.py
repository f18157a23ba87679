"""Privacy: clipping, noise, sampling, and the accountant for all three. Imports no torch."""
