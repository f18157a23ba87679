"""The command line. Nothing here imports torch before a command that needs it runs. `data/` has the commands for the
user's own records, `keys/` those of `laconic keys`, `pages/` the commands `compare`, `report` and `watch`, `node/`
those of `laconic node`, `trained/` those for a model that is trained. Other packages add commands by entry points.

advise          `laconic advise`
audit           `laconic audit`
doctor          `laconic doctor`
epsilon         `laconic epsilon` and `laconic calibrate`
federate        `laconic federate`
lazy            groups of commands that are imported when they are called
lists           `laconic schemes`, `datasets`, `models`
main            the `laconic` command; errors become one line and an exit code
options         the declared options as flags, and what was given as a configuration
plan            `laconic plan`
reference       `laconic options` and `laconic completion`
run             `laconic run`
sweep           `laconic sweep`
"""
