"""A federation of separate machines: what a node does and what a server does, whatever carries the bytes."""
