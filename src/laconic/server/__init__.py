"""Server rules: from the (noisy) mean code to new weights. All of it is post-processing.

rules  `ServerRule`, `Average`, `ErrorFeedback`, `MajorityVote`; `Tally` and `Scores` for votes and evaluations
steps  `Preconditioned`: short steps in strong directions; `Scheduled`: steps that get shorter, the mean of the last
       iterates
"""
