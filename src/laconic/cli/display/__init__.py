"""What commands show on a terminal.

progress      the live bar, or a line every few seconds
reproduction  what `laconic reproduce` prints
"""
