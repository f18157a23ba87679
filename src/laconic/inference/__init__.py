"""What a federation reveals: attacks on privacy, by somebody who follows the protocol and only looks.

likelihood_ratio  two Gaussians, with and without the target, and the ratio of their densities
membership        was a client in the cohort or in the run, was a record in a client's data?
roc               AUC, and true positives at few false ones, with confidence intervals
standing          where a federation stands, and what any client would send from there
statistics        numbers that grow when the target was there
trade_off         what a promise of privacy allows an attack: a bound on its true positives
trials            many rounds with and without a target, and what each view shows of them
views             what somebody sees of a round: one client's code, the sum of the others', or only the new model
whole_runs        the same for whole short runs
"""
