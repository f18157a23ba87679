"""From a configuration to an experiment: each section becomes the objects that it describes.

auto             what `laconic run auto` chooses, from public facts alone
build            from a configuration to an experiment: data, sampler and model are settled here
check            everything that is wrong with a configuration, at once, before data are loaded
config           the configuration file, `--set`, TOML in and out
forecast         what `laconic plan` prints, with estimates of memory and of the time of the noise
launch           what is written into a run folder, and which options may differ when a run goes on
parts            from the sections of sampler, attack and front end to what they describe
predict          a trained model on new records
resolve_privacy  the budget, σ and S of a run; S as a median of update norms (`--clip-norm median` or `public`)
resolve_scheme   how clients train, how codes are combined, and what stands in for numbers not yet known

The package `data` goes from the `[data]` section to a federation's data.
"""
