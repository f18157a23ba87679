"""The clients of a run. `Run` asks them for one sum per round; here they are simulated on one machine.

attackers    `Attackers`: what malicious clients train and send
base         `Clients`: their interface for a run; `ModelView`: the model that all of them have; `Collected`
secure_sums  `SecureSums`: the secure sums of a run, simulated or masked; terms, plans and keys
simulated    `SimulatedClients`: all clients on this machine; their codes are summed, also in groups, and counted
wire         messages as bytes
work         `ClientWork`: train, tamper, encode, clip, noise; which records are set aside; the same on a node
"""
