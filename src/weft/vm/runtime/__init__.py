"""Out-of-line functions that compiled kernels call: memory access, copies, tiles, barriers, the CTA scheduler.

A kernel's code is the same with and without checkers: it calls these functions through a table, and a probe provides
another set of them.
"""
