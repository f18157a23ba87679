"""`laconic keys`: the keys of nodes and servers, at rest.

archive  `laconic keys backup`, `restore` and `moved`
group    `laconic keys`, and its subcommands `encrypt`, `passphrase` and `rotate`
secret   --key-file and --passphrase-file, and the question for a passphrase
"""
