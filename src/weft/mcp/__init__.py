"""Weft as tools for a coding agent: a server of the Model Context Protocol over standard input and output."""
