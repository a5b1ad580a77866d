"""The version of Weft. The build reads it here; `weft.__version__` is the same."""

__version__ = "0.1.0"
