"""The papers' tables, run again: one TOML file each in `published/`, its runs, and measured beside published figures.

comparison          published beside measured figures: as data, Markdown, CSV; what counts as met in tables of attacks
property_inference  published figures of property inference, from `published/inference/*.toml`
reproduction        `Reproduction`: the rows of a published table as runs, none of them twice
table_files         `table.md`, `table.csv` and pictures of a reproduced table
tables              `Table`, `Row`, `Published`; which rows `--rows` means; private data's tables on other data
                    (`published/stand_ins/*.toml`)
"""
