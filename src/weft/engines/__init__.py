"""Where a kernel runs: the virtual GPU, or a CUDA GPU."""
