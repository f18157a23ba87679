"""Records and who holds them: built-in data sets, the user's own files, and partitions among clients.

dead_leaves  public images made from a seed
download     downloads, checked before they are used
idx          the file format of MNIST
locate       where data files are looked for
partition    which records each client holds: `IIDShards`, `Dirichlet`, `LabelsPerClient`, `ByColumn`
population   `Population`, `Records`, and populations from arrays or functions
sources      the named data sets: digits, mnist, fashion-mnist
sparse       `SparseRows`: inputs that store only their non-zeros
synthetic    clients made on demand from a seed
"""
