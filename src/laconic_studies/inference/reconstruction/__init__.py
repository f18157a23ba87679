"""Reconstruction: what do a client's records look like, given what it sent?

attack      victims, search and comparison
labels      the label of a single record, from the last bias of the update
likeness    PSNR, correlation, and which reconstruction belongs to which record
matching    gradient matching: search records whose code is that of the victim
priors      what pictures look like before any code is seen: total variation; guesses without a code
victims     clients with few records, what they send, and what is seen of it
"""
