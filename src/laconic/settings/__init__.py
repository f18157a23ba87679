"""From a configuration to an experiment: each section becomes the objects that it describes.

build           from a configuration to an experiment: data, sampler and model are settled here
clinical        from health records to a federation
clipnorm        S as a median of update norms (`--clip-norm median` or `public`)
config          the configuration file, `--set`, TOML in and out
costs           estimates of a run's memory, and of the time of its noise
datasets        from the `[data]` section to a population
forecast        what `laconic plan` prints
front_end       from the `[front_end]` section to a front end; it is kept in the run folder
launch          a settled configuration and a folder become a simulation, for every command
predict         a trained model on new patients
resume          which options may differ when a run is resumed
settle_privacy  the budget, σ and S of a run
"""
