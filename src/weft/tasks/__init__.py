"""What must be computed: one file per task."""
