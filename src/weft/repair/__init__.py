"""Tries small edits of a failing kernel: the line of an edit that makes it pass is the line of the mistake."""
