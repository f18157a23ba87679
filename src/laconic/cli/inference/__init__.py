"""`laconic infer`: one module for each subcommand.

group      the group; a new subcommand is one line in its table
property   `laconic infer property`
published  `laconic reproduce` for published figures of property inference
"""
