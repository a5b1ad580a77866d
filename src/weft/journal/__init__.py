"""The books: what was tried, why, what it took and what was decided."""
