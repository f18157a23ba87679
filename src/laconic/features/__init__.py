"""Fixed public feature maps in front of a trained head."""
