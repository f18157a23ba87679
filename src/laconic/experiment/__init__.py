"""An experiment: the live objects of a run, checked, and what follows from its public numbers.

about       what the privacy statement says about noise, grid and sums
calibrated  σ of a scheme that leaves it open, with the scheme's own noise
cautions    warnings before a run starts, where its ε means little
correlated  what noise that is correlated over rounds does not go with
devices     devices by name; the name of the environment
dropouts    which clients drop out in a simulation, and when
experiment  `Experiment`: the live objects of a run, checked
mechanism   `Mechanism`: what a run does to one client's data, in public numbers; its accountant and grid
"""
