"""What the server does with the (noisy) mean code: all of it is post-processing."""
