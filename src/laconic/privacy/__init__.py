"""Privacy: clipping, noise, sampling, and the accountant for all three. Imports no torch.

`mechanism/` has clips and noise, `accounting/` samplers and accountants.

released   each field of statement, row and summary: what it is, and who may see it; what may leave the server
statement  the privacy statement, as data and as lines; cautions
"""
