"""From the codes of a round to one code, which the server rule then decodes.

base  `Aggregator`, and `WeightedMean`, the one that needs no single code
"""
