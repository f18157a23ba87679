"""Who watches a run: displays, trackers, and functions of the user's own.

observer        `Observer`: `start`, `row`, `note`, `end`; plain functions of a row work as well
progress        a live bar on a terminal or in a notebook, a line now and then elsewhere
to_mlflow       `--track mlflow`
to_tensorboard  `--track tensorboard`
to_wandb        `--track wandb`
tracker         `Tracker`: hands released values to a tool for experiments
"""
