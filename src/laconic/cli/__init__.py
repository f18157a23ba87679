"""The command line. Nothing here imports torch before a command that needs it runs. `data/` has the commands for the
user's own records, `display/` what they show, `inference/` the subcommands of `laconic infer`, `pages/` the commands
`compare`, `report` and `watch`, `trained/` those for a model that is trained.

advise          `laconic advise`
audit           `laconic audit`
doctor          `laconic doctor`
epsilon         `laconic epsilon` and `laconic calibrate`
federate        `laconic federate`
lists           `laconic schemes`, `datasets`, `models`
main            the `laconic` command; errors become one line and an exit code
node            `laconic node`
options         the declared options as flags, and what was given as a configuration
plan            `laconic plan`
reference       `laconic options` and `laconic completion`
reproduce       `laconic reproduce`
run             `laconic run`
"""
