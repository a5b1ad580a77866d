"""The mathematics of attention: contract, references, quantisers, inputs, emulation and error reports. NumPy only."""
