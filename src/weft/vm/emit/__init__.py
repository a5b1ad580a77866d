"""LLVM IR for each PTX instruction; mirrors weft.ptx.isa."""
