"""Records and who holds them: built-in data sets, the user's own files, and partitions among clients.

dead_leaves  public images made from a seed
download     downloads, checked before they are used
federated    `FederatedData`: a population and the records that belong to no client
inputs       `Inputs`: a tensor, sparse rows or pictures, and what holds for all of them
locate       where data files are looked for
meaning      `Meaning`: what records mean, as a text and its digest
partition    which records each client holds: `IIDShards`, `Dirichlet`, `LabelsPerClient`, `ByColumn`
pictures     `Pictures`: pictures kept as bytes, in any number of shifted and mirrored variants
population   `Population`, `Records`, and populations from arrays or functions
registry     `SourceInfo`, `Source`, `register`: what a data set with a name is
sources      the data sets that come with the library
sparse       `SparseRows`: inputs that store only their non-zeros
synthetic    clients made on demand from a seed
"""
