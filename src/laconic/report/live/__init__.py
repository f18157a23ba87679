"""`laconic watch`: pages of runs that change, from a server on this machine alone.

runs    the run folders below what was asked for, and what their pages say now
server  the server: loopback, a token in the address, GET and nothing else
"""
