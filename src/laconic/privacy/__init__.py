"""Privacy: clipping, noise, sampling, and the accountant for all three. Imports no torch.

`mechanism/` has clips and noise, `accounting/` samplers and accountants.

statement  the privacy statement, as data and as lines; cautions; what may leave the server
"""
