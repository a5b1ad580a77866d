"""Mutants: versions of a right kernel with one wrong line, which test a gate and a diagnosis."""
