"""Kernel × Workload × Engine → Verdict."""
