"""From a configuration to an experiment: each section becomes the objects that it describes.

attack           from the `[attack]` section to an attack
build            from a configuration to an experiment: data, sampler and model are settled here
check            everything that is wrong with a configuration, at once, before data are loaded
clipnorm         S as a median of update norms (`--clip-norm median` or `public`)
config           the configuration file, `--set`, TOML in and out
costs            estimates of a run's memory, and of the time of its noise
forecast         what `laconic plan` prints
front_end        from the `[front_end]` section to a front end; it is kept in the run folder
launch           what is written into a run folder, and which options may differ when a run goes on
predict          a trained model on new records
prior            what a predicted probability refers to: weights of classes taken out, another prevalence
resolve_privacy  the budget, σ and S of a run
resolve_scheme   how clients train, how codes are combined, and what stands in for numbers not yet known
sampler          from the `[sampler]` section to a sampler

The package `data` goes from the `[data]` section to a federation's data.
"""
