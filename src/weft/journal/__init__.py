"""The journal: what was done, why, what it cost and what was decided."""
