"""Membership inference: was a client in the cohort or in the run, was a record in a client's data?

game              the attack: the adversary plays rounds with and without the target, and judges another one
likelihood_ratio  two Gaussians, with and without the target, and the ratio of their densities
questions         whom is asked about: targets, and their trials with and without them
roc               AUC, and true positives at few false ones, with confidence intervals
statistics        numbers that grow when the target was there
trade_off         what a promise of privacy allows an attack: a bound on its true positives
trials            many rounds with and without a target, and what each view shows of them
whole_runs        the same for whole short runs
"""
