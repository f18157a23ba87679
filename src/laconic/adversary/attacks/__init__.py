"""The attacks, one file each.

fabricated_sizes  attackers say that they hold many records: an attack by weight alone
gradient_ascent   attackers train to make the loss larger (untargeted)
in_backdoor       a class that honest clients have, too, is taught with another label (targeted)
inner_product     the opposite of the honest direction, small enough to pass for an honest update
label_flipping    attackers train on wrong labels, drawn at random (untargeted)
little_is_enough  every coordinate is moved as far as it can be without leaving the honest spread
out_backdoor      a class that no honest client has is taught with the label of another one (targeted)
random_update     noise in the place of an update (untargeted)
sign_inversion    the opposite of the honest update
"""
