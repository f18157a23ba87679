"""`laconic infer`: one module for each subcommand.

group           the group; a new subcommand is one line in its table
membership      `laconic infer membership`
property        `laconic infer property`
published       `laconic reproduce` for published figures of property inference
reconstruction  `laconic infer reconstruction`
shown           what membership and reconstruction have in common: progress, files, tables
"""
