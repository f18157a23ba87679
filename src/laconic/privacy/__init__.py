"""Privacy: bounding, noise, sampling, and the accountant that answers for all three. Imports no torch."""
