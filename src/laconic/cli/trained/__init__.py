"""Commands for a model that is trained.

export  `laconic export`
"""
