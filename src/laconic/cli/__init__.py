"""The command line. Nothing here imports torch before a command that needs it runs. `node/` has the
commands of `laconic node`. Other packages add commands by entry points.

audit     `laconic audit`
epsilon   `laconic epsilon` and `laconic calibrate`
federate  `laconic federate`
keys      `laconic keys`: what opens the keys of nodes and servers, and their backup
lists     `laconic schemes`, `datasets`, `models`, `options`, `completion`, `doctor`
main      the `laconic` command; errors become one line and an exit code
options   the declared options as flags, and what was given as a configuration
pages     `laconic compare`, `report`, `watch`
plan      `laconic plan` and `advise`
run       `laconic run`
schema    `laconic schema init`
sweep     `laconic sweep`
trained   `laconic export` and `predict`
"""
