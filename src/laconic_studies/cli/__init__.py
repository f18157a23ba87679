"""The commands of the studies. Nothing here imports torch before a command that needs it runs.

features        `laconic features`: train a front end on made pictures
infer           `laconic infer`: the group; a new kind of inference is one line in its table
membership      `laconic infer membership`
property        `laconic infer property`
published       `laconic reproduce` for published figures of property inference
reconstruction  `laconic infer reconstruction`
reproduce       `laconic reproduce`
reproduction    what `laconic reproduce` prints
shown           what membership and reconstruction have in common: progress, files, tables
"""
