"""The papers' networks, and any module of the user's.

networks  the papers' networks: `cnn`, `mlp`, `logistic`
registry  models by name, or the user's own as `package.module:factory`
"""
