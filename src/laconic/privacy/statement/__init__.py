"""What may be said of an ε, in words.

cautions   when an ε promises little or nothing, in words; a δ of 1/N or more is refused
statement  the privacy statement, as data and as lines
"""
