"""A stand-in for the CUDA driver: an unmodified program's calls go to the virtual GPU (`weft exec`)."""
