"""Flower as the transport: it carries the bytes, laconic gives them meaning.

app_config  Flower's run configuration as a laconic one
client_app  the courier as a Flower `ClientApp`
courier     Flower's grid as a courier
federate    a whole federation, from the offer to the result
messages    fields as Flower messages, and what Flower adds to them
orphan      ends an app's process when its Flower parent is gone
resident    a courier that stays, and runs no app
server_app  the server as a Flower `ServerApp`
strategy    `SchemeStrategy`: a run as a Flower strategy
"""
