"""Counters of a launch under the names of Nsight Compute, from a run on the virtual GPU and the cubin's SASS."""
