"""Records and who holds them: built-in data sets, the user's own files, and partitions among clients.

download    files of data sets: checked against their published sums, and downloaded
federated   `FederatedData`: a population and the records that belong to no client
inputs      `Inputs`: a tensor, sparse rows or pictures, and what holds for all of them
meaning     `Meaning`: what records mean, as a text and its digest
partition   which records each client holds: `IIDShards`, `Dirichlet`, `LabelsPerClient`, `ByColumn`
population  `Population`, `Records`, and populations from arrays or functions
registry    `SourceInfo`, `Source`, `register`: what a data set with a name is, where its files are; the user's own
sources     the data sets that come with the library, and those of other installed packages
synthetic   records from a seed: clients made on demand, and public images of dead leaves
text        texts as numbers: words, vocabularies, bags of words
"""
