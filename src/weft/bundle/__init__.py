"""One file that says everything about a judgement, so that anybody can repeat it: `weft bundle`, `weft replay`."""
