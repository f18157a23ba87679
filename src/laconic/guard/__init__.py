"""What a node must be trusted for, in few lines and without torch: its imports from the project are all that it trusts.

Provisional: contracts and folders may change from one version to the next.

contract    what a signed offer makes a node keep: who, how often, with which bound and which noise
folder      `NodeFolder`: the node's identity, its keys and what it was told, by run
guard       `Guard`: joins, charges, noises, masks; the order in which that happens
keys        private keys at rest
ledger      what uploads cost, in closed form
limits      why an offer or an upload is refused: the policy, applied to the contract
noise       clips a vector and draws integer noise around it: tables of the discrete Gaussian, exact to 128 bits
policy      `Policy`: what the node's owner allows and declares
protect     a vector or a sum of training, bounded and noised as the contract says
roster      the keys of all nodes of a run, told once
transcript  the node's own log: append-only, chained, noticed if it was set back
withheld    refusals whose reasons stay on the node
"""
