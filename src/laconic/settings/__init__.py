"""From a configuration to an experiment: each section becomes the objects that it describes.

auto             what `laconic run auto` chooses, from public facts alone
build            from a configuration to an experiment; what a run folder holds of it, and what may differ on resuming
check            everything that is wrong with a configuration, at once, before data are loaded
config           the configuration file, `--set`, TOML in and out
forecast         what `laconic plan` prints, with estimates of memory and of the time of the noise
parts            from the sections of sampler, attack and front end to what they describe
predict          a trained model on new records
resolve          how clients train, how codes are combined, the budget, σ and S; what stands in for open numbers

The package `data` goes from the `[data]` section to a federation's data.
"""
