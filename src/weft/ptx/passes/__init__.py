"""Passes over a function, one verb per file."""
