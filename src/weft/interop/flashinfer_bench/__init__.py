"""Reads and writes flashinfer-bench's definitions, workloads, solutions and traces.

records (the contents of a file, read strictly) → read_folder → call (a solution on a workload as a case of Weft);
export_rung (a rung as such files); trace (a verdict as a Trace).
"""
