"""An experiment: the live objects of a run, checked, and what follows from its public numbers.

about       what the privacy statement says about noise, grid and sums
calibrated  σ of a scheme that leaves it open, with the scheme's own noise
experiment  `Experiment`: the live objects of a run, checked
identity    what an experiment is, for folders and the names of noise; devices by name; the name of the environment
mechanism   `Mechanism`: what a run does to one client's data, in public numbers; accountant, grid, dropouts, warnings
outlook     whether a private run can learn anything: a traffic light, before any ε is spent
prior       what a predicted probability refers to: weights of classes taken out, another prevalence
"""
