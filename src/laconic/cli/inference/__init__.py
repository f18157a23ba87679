"""`laconic infer`: one module for each subcommand.

group           the group; a new subcommand is one line in its table
membership      `laconic infer membership`
property        `laconic infer property`
reconstruction  `laconic infer reconstruction`
shown           what they have in common: progress, files, tables
"""
