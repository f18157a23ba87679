"""Reconstruction: what do a client's records look like, given what it sent?

attack    victims, search and comparison
matching  gradient matching: search records whose code is that of the victim
"""
