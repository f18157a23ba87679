"""Compression: `encode` and `decode` of one codec side by side.

base     `Codec`, `Identity`, which changes nothing, and `Sign`, one bit a weight
dct      the discrete cosine transform, and `LowPassDCT`, which sends its first coefficients
queries  `Query`: what clients are asked in some rounds; `Answers`, the code of these rounds; `Evaluations`
scaling  `Scaled`: columns on a common scale; `Moments`: a query that measures how, inside the ε
solvers  `Solver`: sparse reconstruction from low frequencies, `Adjoint` and `Fista`
subset   some coordinates: new at random, fixed at random, or chosen with public data
votes    `VotedSubset`: coordinates on which clients vote in the first rounds, with `Ballot`
"""
