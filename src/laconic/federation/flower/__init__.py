"""Flower carries the bytes; everything that the bytes mean is laconic's. No other package imports `flwr`.

app_config  Flower's run configuration as a laconic one
client_app  the two sides as Flower apps
courier     Flower's grid as a courier
federate    a federation from its first message to its last
messages    fields as Flower messages, and what Flower adds to them
orphan      ends an app's process when Flower has left it alone
server_app  the two sides as Flower apps
strategy    `SchemeStrategy`: a run as a Flower strategy
"""
