"""One file with everything that is needed to repeat a verdict: `weft bundle`, `weft replay`."""
