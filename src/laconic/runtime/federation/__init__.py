"""A federation of separate machines, without the machinery that carries its bytes: what a node does, what a server does."""
