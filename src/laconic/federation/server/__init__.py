"""The server of a federation: who takes part, what they are told, and what is made of their answers.

members         `Members`: who takes part, asked once, kept with the run
notices         which node did not do as asked, and why
remote_clients  `RemoteClients`: what nodes are told, and what is made of their answers
settings        how long a server waits, and for how many
"""
