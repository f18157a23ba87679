"""The clients of a round: whoever they are, `Run` asks them for one sum. Here they are simulated on one machine.

known_keys   which keys clients keep when a masked run is resumed
secure_sums  `SecureSums`: the secure sums of a run, simulated or masked; terms and plans for every runtime
simulated    `SimulatedClients`: train, encode, protect, and count what would travel
wire         messages as bytes
"""
