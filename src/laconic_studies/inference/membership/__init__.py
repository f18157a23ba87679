"""Membership inference: was a client in the cohort or in the run, was a record in a client's data?

game    the attack: the adversary plays rounds with and without the target, and judges another one
roc     AUC, and true positives at few false ones; what a promise of privacy allows
trials  many rounds, or whole short runs, with and without a target, and what each view shows of them
"""
