"""Runtimes: the simulator on one machine, its run folder and its wire format."""
