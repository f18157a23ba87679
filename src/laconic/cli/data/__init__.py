"""Commands for the user's own records: those to train on, and those to predict for.

features  `laconic features`: train a front end on made pictures
predict   `laconic predict`
schema    `laconic schema init`
"""
