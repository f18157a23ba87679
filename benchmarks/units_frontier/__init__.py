"""Pictures at record level: what a linear layer behind a public front end, and a network, reach at which ε.

heads     the linear layer: settings chosen on held-out pictures, then runs of all
networks  a small convolutional network, trained from its random start
page      the page and its picture, from the files of runs alone
"""
