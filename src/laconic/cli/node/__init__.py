"""`laconic node`: the commands of a data owner.

group    `laconic node` itself
predict  `laconic node predict`
serve    `laconic node serve` and `courier`; how an owner says that records are read
status   `laconic node status` and `identity`
"""
