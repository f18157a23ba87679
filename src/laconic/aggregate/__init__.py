"""From the codes of a round to one code, which the server rule then decodes.

base              `Aggregator`, and `WeightedMean`, for which the sum of the codes is enough
blocks            sorting, distances and combinations of large codes, a block of coordinates at a time
bulyan            `Bulyan`: Krum again and again, then a trimmed mean around the median
centred_clipping  `CentredClipping`: steps of bounded length from the last aggregate
geometric_median  `GeometricMedian`: the point with the smallest sum of distances
krum              `Krum` and `MultiKrum`: the codes with the nearest neighbours
median            `Median` of each coordinate
mixing            `NearestNeighbourMixing` in front of any rule
names             the rules by name, with their options
norm_bound        `NormBound`: no code is longer than a bound
protocol          `PlainSum` and `SecureSum`: what the server may see of the codes
trimmed_mean      `TrimmedMean` of each coordinate

All rules but the mean look at single codes, and none of them uses the data sizes that clients claim: whoever claims
more would count more. Attackers may send anything; codes that are not finite are left out before the rule sees them
(`round.finite_codes`), and a round with fewer codes than the rule needs (`least_codes`) changes nothing.
"""
