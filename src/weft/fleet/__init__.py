"""Workers that take evaluations from the store: on this machine, on others, on a Ray cluster."""
