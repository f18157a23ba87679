"""Fixed public feature maps in front of a trained head.

base        `FrontEnd`: features, mirror images, projection; digest, file, what is said of it
blocks      many records through a front end, in blocks of one size
front_end   `ScatteringFrontEnd`, and how a projection is found
joined      several front ends side by side, whitened together
kinds       the front ends by name: made as asked for, or built again from a file
module      a frozen torch module of the user's own, tried on made records and identified
patches     where patterns are seen that were learnt from public images
population  populations of features: each record is mapped once, when it is first needed
projection  `Whitening` by principal components of public images, `Selection` at random
scattering  `Scattering`: the transform, its wavelets and its blur
tables      rows of numbers: random Fourier features, principal components of public rows

Other packages add front ends that are read from a file, by entry points.
"""
