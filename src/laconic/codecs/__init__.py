"""Compression: `encode` and `decode` of one codec side by side.

base      `Codec`, and `Identity`, which changes nothing
dct       the discrete cosine transform, and `LowPassDCT`, which sends its first coefficients
measured  `Evaluations` and `Measured`: cells of the clients' own records, for evaluations
sign      `Sign`: one bit per weight
solvers   `Solver`: sparse reconstruction from low frequencies, `Adjoint` and `Fista`
subset    some coordinates: new at random, fixed at random, or chosen with public data
votes     `VotedSubset`: coordinates on which clients vote in the first rounds, with `Ballot`
"""
