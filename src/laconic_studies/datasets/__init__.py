"""Data sets that only studies use, each with its loader and what is said of it.

faces     7,000 faces with attributes, in the place of LFW
hapt      windows of a smartphone's sensors, with the people who carried it
lfw       Labeled Faces in the Wild with the attributes of every picture
toxicity  who found which comment on Wikipedia toxic: 4,301 people with what is known of them
"""
