"""Records, errors, findings and knobs. Imports nothing else of Weft."""
