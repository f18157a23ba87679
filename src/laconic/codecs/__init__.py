"""Compression: `encode` and `decode` of one codec side by side."""
