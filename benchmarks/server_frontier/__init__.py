"""The second edition of the frontier: accuracy against the ε of the server, with everyone in each of few rounds.

worlds    the federations, and a setting with its command
features  the components of everyone's features, computed once for a seed
choose    settings, chosen with held-out pictures
runs      the test runs
page      docs/results/frontier-server.md and its pictures
"""
