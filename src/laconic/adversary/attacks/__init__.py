"""The attacks, by what they are after.

gradient_ascent   a larger loss, the opposite of the honest update, noise in its place, fabricated weights (untargeted)
labels            records with other labels: two backdoors (targeted), and labels drawn at random
little_is_enough  what passes for an honest update: every coordinate inside the honest spread, or a short opposite
"""
