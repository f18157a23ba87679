"""Commands that show runs: in a table, as a page, live.

compare  `laconic compare`
report   `laconic report`
watch    `laconic watch`
writing  a page goes where the user said, and replaces nothing but a page
"""
