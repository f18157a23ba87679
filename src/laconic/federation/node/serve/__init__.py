"""The node as a process of its own, which belongs to the owner of the data: `laconic node serve`.

hand_over    messages as bytes on a socket: what a courier does with one, and `Daemon` before a node; `short_path`
place        the lock of a served folder, and its socket: where it is, and who may open it
served_node  the node that is served: `serve`, its policy, and what it says of itself
watched      `WatchedNode`: every message is counted and logged; `NodeFigures` for Prometheus
"""
