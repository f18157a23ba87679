"""Clients that attack: who they are, what they train on, what they send, and what that does to model and promise.

attack         `Attack`: what all attacks have in common; `Scene`: what attackers know when they forge an update
confusion      how a model does by class: accuracy of every class, of the attacked one, and of the attack
malicious      which clients are malicious, how many of them are in a cohort, which records they have
missing_noise  the ε that holds when attackers leave out their noise
registry       the attacks by name, and the user's own as package.module:name
ring           what becomes of a boosted sum in a ring that is too small for it

The package `attacks` has the attacks.
"""
