"""`laconic node`: the commands of a data owner.

courier  `laconic node courier`
group    `laconic node` itself
predict  `laconic node predict`
serve    `laconic node serve`
status   `laconic node status` and `identity`
"""
