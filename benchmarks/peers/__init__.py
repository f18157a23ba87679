"""Other people's simulators, solvers and samplers, each in an environment of its own."""
