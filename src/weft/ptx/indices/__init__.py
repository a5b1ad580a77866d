"""The index arithmetic of one thread, computed twice: as the machine does, and in unlimited integers."""
