"""`weft mcp`: serve Weft's tools to a coding agent over standard input and output."""

import importlib.util

from weft.core.distribution import install_command
from weft.core.errors import ToolMissing


def mcp() -> None:
    """Serve check, diagnose, profile, show, explain and evolve_status by the Model Context Protocol until input ends.

    Configure your coding agent with command `weft` and arguments `mcp`: see docs/agents.md.
    """
    if importlib.util.find_spec("mcp") is None:
        raise ToolMissing(f"`weft mcp` needs the package mcp: {install_command('mcp')}")
    from weft.mcp.server import serve

    serve()
