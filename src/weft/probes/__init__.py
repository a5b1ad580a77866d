"""What watches a run: each probe hands the virtual GPU its instrumentation."""
