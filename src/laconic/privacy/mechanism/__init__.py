"""Clipping and noise of codes. Imports torch only inside functions that are handed tensors.

bands              which noise is correlated with which: the banded matrix of a run, and what it costs and gains
clip               `Clip`, `NoClip`, `L2Clip`, `UnitEntries` (for signs), `Marks` (for votes)
correlated         `CorrelatedGaussian`: integer noise that the server adds, correlated over rounds
discrete_gaussian  `DiscreteGaussian`: integers drawn around a code, and why the Gaussian's ε holds
discrete_sampler   draws of tensors from the discrete Gaussian, by the sampler of `laconic.guard.noise`
gaussian           `Noise`, `NoNoise`, `Gaussian` (noise shares in floats, as in the papers)
grid               `Grid`: how fine the integers are, and how many bits their sum needs
record_noise       integer noise for the private steps of one client (DP-SGD)
"""
