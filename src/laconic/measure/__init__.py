"""Measuring: bytes and time, metrics, reports."""
