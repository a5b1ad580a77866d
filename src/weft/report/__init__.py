"""One HTML page: a kernel's verdict, error, stages, source and cost, or a search with its lineage."""
