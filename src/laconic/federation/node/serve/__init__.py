"""The node as a process of its own, which belongs to the owner of the data: `laconic node serve`.

address         the address of a socket, however long its path is
daemon          `Daemon`: one node behind a Unix socket
figures         `NodeFigures`: the node's figures for Prometheus
frames          a message as bytes on a socket
hand_over       the other side: what a courier does with a message
kept_work       the records and the work of the runs under way, kept in memory
lock            one process serves a folder
place           the socket: where it is, and who may open it
served_node     the node that is served: `serve`, and what it says of itself
settled_policy  the policy as its owner has saved it, never half of it
watched         `WatchedNode`: every message is counted and logged
"""
