"""Federations on Flower: it carries the bytes, and everything that the bytes mean is laconic's.

Only `flwr.app`, `flwr.clientapp` and `flwr.serverapp` are imported, and only here.
"""
