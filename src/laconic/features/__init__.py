"""Fixed public feature maps in front of a trained head.

base        `FrontEnd`: features, mirror images, projection; digest, file, what is said of it; `FileFrontEnd` of other
            packages
kinds       the front ends by name: made as asked for, or built again from a file; several side by side, whitened
            together
module      a frozen torch module of the user's own, tried on made records and identified
patches     where patterns are seen that were learnt from public images
population  records through a front end: in blocks, and populations whose records are mapped once
projection  `Whitening` by principal components of public images, `Selection` at random
scattering  `ScatteringFrontEnd`: the scattering transform, its wavelets and its blur
tables      rows of numbers: random Fourier features, principal components of public rows
"""
