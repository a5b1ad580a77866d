"""Evaluations in child processes: a crash, a hang or too much memory fails only that candidate."""
