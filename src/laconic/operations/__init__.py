"""What an operator of a server or a node watches: events as JSON lines, figures for Prometheus. Standard library only.

endpoint    `Endpoint`: figures on a port of this machine
events      `EventLog`: one JSON object per line, with fields that are listed here and no others
exposition  figures in Prometheus' text format
"""
