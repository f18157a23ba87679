"""Local training: what a client does with the weights it received."""
