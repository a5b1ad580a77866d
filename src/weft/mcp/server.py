"""The server: its tools, and the instructions for the model."""

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

import weft

from .check import check
from .diagnose import diagnose
from .evolve_status import evolve_status
from .explain import explain
from .profile import profile
from .show import show

INSTRUCTIONS = """Weft runs real compiled CUDA and Triton attention kernels on this machine's CPU and judges them.
The loop: `check` a kernel; if it failed, `diagnose` it, fix the line it names, `check` again; when it passed,
`profile` it and change what limits it. `explain` a finding's code; `show` registers, spills, PTX or SASS.
Give a file by `path`, or a draft as `text` (isolated). `// weft:` lines at the top of a file describe its launches;
if a file has none, the error contains a draft. Cycles are modelled, never measured. `not_judged` is not `passed`."""
TOOLS = (check, diagnose, profile, show, explain, evolve_status)


def make_server() -> MCPServer[object]:
    """Return a server with every tool; no tool changes the user's files."""
    server: MCPServer[object] = MCPServer(
        "weft", instructions=INSTRUCTIONS, version=weft.__version__, log_level="WARNING"
    )
    for tool in TOOLS:
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    return server


def serve() -> None:
    """Serve until the client closes standard input. The SDK owns standard output: prints go to standard error."""
    make_server().run("stdio")
