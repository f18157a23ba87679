"""Keys at rest: how the private keys of nodes and servers lie on the disk, encrypted where their owner wants it.

change       encrypt a folder's keys, change what opens them, make a new identity
files        small files, replaced in one step
keyring      `Keyring`: the keys of one folder
original     whether a folder is the one that was made, or a copy of it
permissions  refuses what the group or others may read
secret       `Secret`: the passphrase or key file that opens a folder's keys, and where it is found
wrapping     the file that holds the folder's wrapping key, and keys sealed under it
"""
