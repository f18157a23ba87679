"""The command line. Nothing here imports torch before a command that needs it runs.

compare         `laconic compare`
doctor          `laconic doctor`
epsilon         `laconic epsilon` and `laconic calibrate`
federate        `laconic federate`
lists           `laconic schemes`, `datasets`, `models`
main            the `laconic` command; errors become one line and an exit code
node            `laconic node`
options         the options, and where each goes in the configuration
plan            `laconic plan`
predict         `laconic predict`
progress        the live bar, or a line every few seconds
reproduce       `laconic reproduce`
reproduce_show  what `laconic reproduce` prints
run             `laconic run`
"""
