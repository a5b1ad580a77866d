"""The slow, simple interpreter: it defines what each instruction means."""
