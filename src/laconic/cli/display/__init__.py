"""What commands show on a terminal.

reproduction  what `laconic reproduce` prints
"""
