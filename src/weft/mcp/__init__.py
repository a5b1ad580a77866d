"""Weft's tools for a coding agent: a Model Context Protocol server over standard input and output."""
