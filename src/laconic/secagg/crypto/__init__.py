"""The building blocks of secure aggregation: keys, masks, secret sharing, arithmetic mod 2^b.

keys    identities, announced keys, and what is derived from them
labels  the labels of all hashes, keys and signatures
masks   `Ring`: vectors mod 2^b, and AES-256-CTR keystreams that are added to them
shamir  secret sharing for many secrets at once
"""
