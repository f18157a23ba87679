"""Does `laconic advise` rank settings as runs do? And the fit of the model by which it ranks them."""
