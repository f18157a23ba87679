"""What commands show on a terminal.

progress      the live bar, or a line now and then
reproduction  what `laconic reproduce` prints
"""
