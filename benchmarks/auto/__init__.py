"""How far `laconic run auto` is from the best of 200 settings, on named tables and on tables made at random.

tables     tables with gaps, heavy tails, levels, hospitals that differ; and the named ones
grid       the same mechanism in plain torch, to try 200 settings with the same ε quickly
compare    a table and an ε: what auto reaches, the best of the grid, and what is possible without privacy
__main__   python -m benchmarks.auto: every table and ε, into docs/results/auto/runs.csv; goes on where it was stopped
page       python -m benchmarks.auto.page: docs/results/auto.md
"""
