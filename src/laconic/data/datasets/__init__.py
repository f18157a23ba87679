"""The built-in data sets: one module for each kind of file, with its loader and what is said of it.

embedded  8 × 8 digits and a small table of tumours, both inside scikit-learn
imdb      film reviews as numbers of words, and as text
pictures  MNIST and Fashion-MNIST in IDX files, CIFAR-10 in binary batches
"""
