"""Clients that attack: who they are, what they train on, what they send, and what that does to model and promise.

attack         `Attack`: what all attacks have in common; `Scene`: what attackers know when they forge an update
malicious      which clients are malicious, how many of them are in a cohort, which records they have
missing_noise  the ε that holds when attackers leave out their noise; boosted votes in a ring that is too small
registry       the attacks by name, and the user's own as package.module:name

The package `attacks` has the attacks.
"""
