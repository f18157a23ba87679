"""The server of a federation: its nodes, the requests to them, and the sum of their answers.

lost_rounds     when too many rounds in a row were discarded, the run ends with the reason
members         `Members`: which nodes take part; asked once, kept with the run
notices         warnings about nodes, for the operator of the server
outcome         what was agreed, who was missing, and whether the planned model was trained
remote_clients  `RemoteClients`: sends requests to nodes and opens the sum of their answers
settings        how long a server waits, and for how many nodes
watchers        a log of events and figures for Prometheus, where the options ask for them
"""
