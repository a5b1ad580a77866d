"""`pytest --weft`: a project's own kernel tests, unmodified, on the virtual GPU with the checkers on."""
