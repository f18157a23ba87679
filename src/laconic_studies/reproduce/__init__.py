"""The papers' tables, run again: one TOML file each in `published/`, its runs, and measured beside published figures.

attack_figures      tables of attacks: what counts as met, and their columns
class_curves        accuracy and accuracy on the attacked class by round, from run folders
comparison          published beside measured figures: as data, Markdown, CSV
kept_weight_runs    the weights that FL-TOP keeps, from two run folders
kept_weights        kept weights layer by layer
property_inference  published figures of property inference, from `published/inference/*.toml`
reproduction        `Reproduction`: the rows of a published table as runs, none of them twice
selection           which rows `--rows` means
stand_ins           tables of private data, run on other data; `published/stand_ins/*.toml` has what differs
table_files         `table.md`, `table.csv` and pictures of a reproduced table
table_plots         pictures of a reproduced table
tables              `Table`, `Row`, `Published`; reads `published/*.toml`, one file per published table
"""
