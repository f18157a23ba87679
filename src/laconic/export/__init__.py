"""A finished run for others: read back from its folder, or written as a file that other programs take.

loaded         `laconic.load`: the result of a finished run
trained        its model as a module again, from what the folder says
"""
