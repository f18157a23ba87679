"""A whole federation on one machine, as processes of its own: `laconic federate`.

data       each node's part of the data set
guard      ends processes when their parent is gone
node       a node of a trial as a process of its own
processes  Flower's programs as processes of ours, started again when they end by themselves
server     the `ServerApp` of a trial
superlink  certificates, node keys, and what the SuperLink is told of nodes
trial      a SuperLink and SuperNodes on this machine
"""
