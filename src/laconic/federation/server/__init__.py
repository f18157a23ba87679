"""The server of a federation: its nodes, the requests to them, and the sum of their answers.

members         `Members`: which nodes take part; asked once, kept with the run
outcome         `LostRounds`, after which a run ends; what was agreed, who was missing, what the model lacks
remote_clients  `RemoteClients`: sends requests to nodes and opens the sum of their answers
settings        how long a server waits, and for how many nodes
watchers        a log of events, figures for Prometheus, warnings about nodes for the operator
"""
