"""From the codes of a round to one code, which the server rule then decodes.

base      `Aggregator`, and `WeightedMean`, for which the sum of the codes is enough
protocol  `PlainSum` and `SecureSum`: what the server may see of the codes
"""
