"""Time on a real GPU: interleaved A/B with a confidence interval, and "not distinguishable" as an answer."""
