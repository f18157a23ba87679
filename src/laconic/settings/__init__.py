"""From a configuration to an experiment: each section becomes the objects that it describes.

build           from a configuration to an experiment: data, sampler and model are settled here
clinical        from health records to a federation
clipnorm        S as a median of update norms (`--clip-norm median` or `public`)
config          the configuration file, `--set`, TOML in and out
costs           the memory of a run, and the time of its noise
datasets        from the `[data]` section to a population
forecast        what `laconic plan` says
front_end       from the `[front_end]` section to a front end; it is kept in the run folder
launch          a settled configuration and a folder become a simulation, for every command
predict         a trained model on new patients
public_records  records that are nobody's secret, from elsewhere or set aside
resume          which options may differ when a run goes on
settle_privacy  its budget, σ and S
"""
