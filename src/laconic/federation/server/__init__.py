"""The server of a federation: its nodes, the requests to them, and the sum of their answers.

members         `Members`: which nodes take part, asked once; `Settings`: how long a server waits, and for how many
outcome         `LostRounds`, after which a run ends; what was agreed, who was missing, what the model lacks
remote_clients  `RemoteClients`: sends requests to nodes and opens the sum of their answers
watchers        `RecordedEvents`, `RunFigures` for Prometheus, `Notices`: what the operator of a server sees
"""
