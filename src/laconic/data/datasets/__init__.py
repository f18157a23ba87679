"""The built-in data sets: one module for each, or for each kind of file, with its loader and what is said of it.

digits  8 × 8 digits inside scikit-learn
idx     the file format of MNIST
mnist   MNIST and Fashion-MNIST in IDX files
plugin  a data set of the user's own, `package.module:function`
"""
