"""Evaluations in child processes: what a candidate breaks, hangs or eats costs one verdict."""
