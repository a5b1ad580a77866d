"""The values a kernel held at each stage of attention, recovered from a run without changing its source."""
