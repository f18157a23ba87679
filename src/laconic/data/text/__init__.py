"""Texts as numbers.

encode      texts as a bag of words, or as the numbers of their words in order
vocabulary  which number a word has: by a hash, by a list of words, or by a list fitted on the training texts
words       a text cut into its words
"""
