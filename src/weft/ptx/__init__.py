"""PTX text → Module: lexer, parser, instruction tables and passes."""
