"""A small network that is trained by contrast on made pictures alone: a public front end without any real picture.

front_end  `ContrastFrontEnd`: the network, fixed, in front of a head; read from its file
network    the layers, and the vector that the loss compares
scenes     dead leaves made on the device, each scene seen twice
training   two views of a scene are alike, those of others are not
"""
