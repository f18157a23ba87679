"""Local training: what a client does with the weights it received.

balance     batches with both classes in equal parts, or a weighted loss
flat        `FlatModel`: a module as a function of one flat weight vector
importance  which weights FL-TOP keeps, from gradients on public data
local       `LocalSGD`: optimiser, steps or epochs, batch size; `LocalDPSGD`: private steps
losses      losses per record, and when a record counts as correct
metrics     balanced accuracy, AUROC, and their quantiles over clients
optimizers  SGD and Adam for many clients at once
schedule    which records a client trains on in which step
words       which numbers of words a model knows
"""
