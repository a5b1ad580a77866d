"""One-line wrong versions of a right kernel, to try a gate and a diagnosis with."""
