"""Whoever takes part in a round. `Run` asks them for one sum; here they are simulated on one machine.

base         `Clients`: what a run asks of them; `ModelView`: the model that everyone has; `Collected`
known_keys   which keys the clients of a masked run have
secure_sums  `SecureSums`: the secure sums of a run, simulated or masked; terms and plans for every runtime
simulated    `SimulatedClients`: all of them on this machine, and what they send added up and counted
wire         messages as bytes
work         `ClientWork`: train, tamper, encode, clip, noise; the same in a simulation and on a node
"""
