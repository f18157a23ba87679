"""Flower as the transport: it carries the bytes, laconic gives them meaning.

client_app  the courier as a Flower `ClientApp`
messages    fields as Flower messages, and what Flower adds to them; ends an app whose parent is gone
resident    a courier that stays, and runs no app
server_app  the server as a Flower `ServerApp`: a whole federation, from its configuration to the result
strategy    `SchemeStrategy`: a run as a Flower strategy, and the grid as a courier
"""
