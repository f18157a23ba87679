"""Records and who holds them: built-in data sets, the user's own files, and ways to deal records out to clients.

dead_leaves  public images made from a seed
download     downloads that are checked before they get their name
idx          the file format of MNIST
locate       where data files are looked for
partition    ways to deal records out: `IIDShards`, `Dirichlet`, `LabelsPerClient`, `ByColumn`
population   `Population`, `Records`, and populations from arrays or functions
sources      the named data sets: digits, mnist, fashion-mnist
sparse       `SparseRows`: inputs of which only the non-zeros are kept
synthetic    clients made on demand from a seed
"""
