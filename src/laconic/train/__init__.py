"""Local training: what a client does with the weights it received.

batches     which records a client trains on in which step; both classes in equal parts, or a weighted loss
flat        `FlatModel`: a module as a function of one flat weight vector; which numbers of words it knows
importance  which weights FL-TOP keeps, from gradients on public data
local       `LocalSGD`: optimiser, steps or epochs, batch size; `LocalDPSGD`: private steps; `UnitGradients`
memory      modules of a user's own forget between calls; what remembers in other ways is refused
losses      losses per record; accuracy, balanced accuracy, AUROC, and their quantiles over clients
engines/    what trains a cohort: one client after another, or many at once
layers/     layers with weights per client, and other ways to make a step cost less
"""
