"""The slow, obvious interpreter: what each instruction means."""
