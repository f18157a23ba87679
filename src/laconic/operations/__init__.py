"""What an operator of a server or a node watches: events as JSON lines, figures for Prometheus. Standard library only.

events        `EventLog`: one JSON object per line, with fields that are listed here and no others
local_server  `LocalServer`: a small HTTP server for this machine alone; metrics and `laconic watch` are served by it
metrics       figures in Prometheus' text format; `Endpoint`: a port of this machine that shows them
"""
