"""Wrong implementations: what the gate of a task must reject."""
