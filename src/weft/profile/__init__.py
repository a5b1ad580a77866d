"""Counters of a launch as the hardware's profiler names them, from a run on the virtual GPU and the cubin's SASS."""
