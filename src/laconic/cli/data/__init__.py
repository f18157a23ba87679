"""Commands for the user's own records: those to train on, and those to predict for.

predict   `laconic predict`
schema    `laconic schema init`
"""
