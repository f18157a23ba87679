"""Server rules: from the (noisy) mean code to new weights. All of it is post-processing.

error_feedback  `ErrorFeedback`: momentum and error feedback in the code domain
preconditioned  `Preconditioned`: few rounds of a linear layer, with short steps in strong directions
rules           `ServerRule` and `Average` (with server learning rate and momentum)
scheduled       `Scheduled`: steps that get shorter, the mean of the last iterates
scores          `Scores`: reads an evaluation
tally           `Tally`: counts the votes on which weights are kept
vote            `MajorityVote` for signs
"""
