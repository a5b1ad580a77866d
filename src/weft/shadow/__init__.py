"""Marks that travel with every byte through the reference interpreter: one transport, and an algebra for each use.

`probes/taint.py` follows reads of uninitialised memory with it, `diagnose/provenance.py` the elements of Q, K and V.
"""
