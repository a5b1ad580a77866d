"""The name of Weft's distribution on PyPI, and the pip command that adds one of its extras."""

DISTRIBUTION = "weft-gpu"
"""The import and the command are `weft`."""


def install_command(*extras: str) -> str:
    """Returns the pip command that adds `extras` to an installed Weft, or installs Weft with them."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
