"""A whole federation on one machine, as processes of its own: `laconic federate`.

certificates  TLS certificates and node keys for a trial
data          each node's part of the data set
guard         ends processes when their parent is gone
keeper        starts processes again that ended by themselves
leases        signs off SuperNodes that were killed
node          a node of a trial as a process of its own
processes     Flower's programs as processes of ours
registration  tells the SuperLink the nodes' public keys
server        the `ServerApp` of a trial
supervise     `Supervisor`: shows a trial's rounds, and resumes after a crash
trial         a SuperLink and SuperNodes on this machine
"""
