"""Research with Laconic: what its papers measured, run again, and what an attacker learns from a federation.

Everything here is experimental: names and results may change from one version to the next. It builds on `laconic`,
which never imports it. The commands `laconic infer`, `laconic reproduce` and `laconic features`, the data sets below
and the front end `contrast` come to `laconic` by entry points, as those of any other package would.

cli/        the commands
contrast/   a front end trained by contrast on made pictures alone
datasets/   data sets that only studies use: lfw, faces, toxicity, hapt
inference/  what codes, sums and models reveal: attacks on privacy, for the simulator
reproduce/  the papers' tables, run again
"""
