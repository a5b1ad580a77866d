"""A PyTorch extension's CUDA file, read without PyTorch: device code apart, launch lines from what its host code does.

cpp_tokens → cpp_items → device_part (what stays) and signatures → host_* (host code followed as values, not executed) →
merge_launches → size_names → import_lines → import_file.
"""
