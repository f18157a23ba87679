"""Clipping and noise of codes. Imports torch only inside functions that are handed tensors.

clip               `Clip`, `NoClip`, `L2Clip`, `UnitEntries` (for signs), `Marks` (for votes)
correlated         `CorrelatedGaussian`: integer noise that the server adds, correlated over rounds; `choose_bands`
discrete_gaussian  `DiscreteGaussian`: integers drawn around a code, why the Gaussian's ε holds; the noise of DP-SGD
gaussian           `Noise`, `NoNoise`, `Gaussian` (noise shares in floats, as in the papers)
grid               `Grid`: how fine the integers are, and how many bits their sum needs
kernels            clipped sums and draws from tables on a GPU, in Triton
"""
