"""A whole federation on one machine, as processes of its own: `laconic federate`.

certificates  TLS certificates and node keys for a trial
client        the apps of a trial
data          the apps of a trial
guard         ends processes when their parent is gone
processes     Flower's programs as processes of ours
server        the apps of a trial
supervise     `Supervisor`: shows a trial's rounds, and goes on after a crash
trial         a SuperLink and SuperNodes on this machine
"""
