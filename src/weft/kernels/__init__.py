"""The ladder of kernels, from the plainest to the fastest."""
