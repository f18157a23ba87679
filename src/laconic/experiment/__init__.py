"""An experiment: the live objects of a run, checked, and what follows from its public numbers.

about       what the privacy statement says of noise, grid and sums
cautions    what its promise is worth, said before it starts
devices     devices by name; the name of the environment
dropouts    who vanishes in a simulation, and when
experiment  `Experiment`: the live objects of a run, checked
mechanism   `Mechanism`: what a run does to one client's data, in public numbers; its accountant and grid
"""
