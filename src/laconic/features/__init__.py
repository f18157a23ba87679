"""Fixed public feature maps in front of a trained head.

blocks      many records through a front end, in blocks of one size
front_end   `ScatteringFrontEnd`: transform and projection; saved and loaded
population  populations of features: each record is mapped once, when it is first needed
projection  `Whitening` by principal components of public images, `Selection` at random
scattering  `Scattering`: the transform, its wavelets and its blur
"""
