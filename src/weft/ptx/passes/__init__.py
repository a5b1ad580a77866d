"""Passes over a function, one verb per file; `kernel_passes.py` lists those of a kernel in order."""
