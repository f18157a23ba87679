"""A small network that is trained by contrast on made pictures alone: a public front end without any real picture.

front_end  `ContrastFrontEnd`: the network, fixed, in front of a head; read from its file
training   two views of a made scene are alike, those of others are not
"""
