"""The privacy statement: what may be claimed about a run, in words.

cautions   warnings when an ε guarantees little or nothing; a δ of 1/N or more is refused
released   what of a run may leave the server
statement  the privacy statement, as data and as lines
"""
