"""From the codes of a round to one code, which the server rule then decodes.

base      `Aggregator`, and `WeightedMean`, for which the sum of the codes is enough; large codes, by blocks
clipping  `NormBound`: no code is longer than a bound; `CentredClipping`: bounded steps from the last aggregate
krum      `Krum` and `MultiKrum`: the codes with the nearest neighbours; `Bulyan`: Krum again and again, then a
          trimmed mean
medians   `Median` and `TrimmedMean` of each coordinate, `GeometricMedian`
mixing    `NearestNeighbourMixing` in front of any rule
names     the rules by name, with their options
protocol  `PlainSum` and `SecureSum`: what the server may see of the codes

All rules but the mean look at single codes, and none of them uses the data sizes that clients claim: a client that
claims more would count more. Attackers may send anything; codes that are not finite are left out before the rule sees
them (`round.finite_codes`), and a round with fewer codes than the rule needs (`least_codes`) changes nothing.
"""
