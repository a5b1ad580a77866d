"""What a kernel held at each stage of attention, recovered from a run without touching its source."""
