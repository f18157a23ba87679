"""How fast Laconic is, side by side with its peers: `python -m benchmarks`, then `python -m benchmarks.report`."""
