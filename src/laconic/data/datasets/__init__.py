"""The built-in data sets: one module for each, or for each kind of file, with its loader and what is said of it.

breast_cancer  tumours inside scikit-learn: a small table
checked        files with a published sum
cifar          CIFAR-10 in binary batches
digits         8 × 8 digits inside scikit-learn
idx            the file format of MNIST
imdb           film reviews as numbers of words
imdb_text      IMDB's film reviews as text
mnist          MNIST and Fashion-MNIST in IDX files
plugin         a data set of the user's own, `package.module:function`
stratified     a test set for data that comes without one
"""
