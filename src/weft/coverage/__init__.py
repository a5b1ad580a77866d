"""Which code of a kernel ran: lines, branches, and the sizes at which it would take another path."""
