"""Charts and tables as HTML and inline SVG, for pages that load nothing.

bars    horizontal bars
chart   lines with points, axes, a legend, and the same numbers as a table
markup  elements whose texts are always escaped
scales  axes and their round numbers
"""
