"""Module → Program → Run: PTX compiled for the host through LLVM."""
