"""Weft's kernels and tasks in the formats of other systems, and theirs in Weft's."""
