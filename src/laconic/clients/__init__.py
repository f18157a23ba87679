"""The clients of a run. `Run` asks them for one sum per round; here they are simulated on one machine.

attackers    `Attackers`: what malicious clients train and send
base         `Clients`: their interface for a run; `ModelView`: the model that all of them have; `Collected`
groups       a cohort that is summed in groups
held_out     which records a client sets aside for evaluations
known_keys   which keys the clients of a masked run have
secure_sums  `SecureSums`: the secure sums of a run, simulated or masked; terms and plans for every runtime
simulated    `SimulatedClients`: all clients on this machine; their codes are summed, their bytes counted
wire         messages as bytes
work         `ClientWork`: train, tamper, encode, clip, noise; the same in a simulation and on a node
"""
