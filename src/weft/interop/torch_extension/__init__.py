"""A CUDA file with host code, read without PyTorch: device code apart, launch lines from what its host code does.

join_headers → cpp_tokens → cpp_items → device_part (what stays), and preprocess → host_view (what the host pass sees)
→ choose_function → host_statements with host_branches, host_expressions, cuda_calls and torch_calls (host code followed
as values, not executed) → merge_launches → size_names → import_lines → import_file.
"""
