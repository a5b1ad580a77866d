"""A PyTorch extension's CUDA file, read without PyTorch: device code apart, launch lines from what its host code does.

cpp_tokens → cpp_items → device_part (what stays) and signatures → host_expressions, host_statements (host code followed
as values, not executed) → size_names → import_lines → import_file.
"""
