"""An experiment: the live objects of a run, checked, and what follows from its public numbers.

about       what the privacy statement says about noise, grid and sums
calibrated  σ of a scheme that leaves it open, with the scheme's own noise
checks      what correlated noise does not go with; warnings where the ε of a run means little
devices     devices by name; the name of the environment
experiment  `Experiment`: the live objects of a run, checked
identity    what an experiment is, for the folder that is resumed and for the names of noise
mechanism   `Mechanism`: what a run does to one client's data, in public numbers; its accountant and grid; dropouts
"""
