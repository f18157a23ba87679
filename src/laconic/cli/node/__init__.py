"""`laconic node`: the commands of a data owner.

predict  `laconic node predict`
serve    `laconic node serve` and `courier`; how an owner says that records are read
status   `laconic node` itself, its `status` and `identity`
"""
