"""The server: its tools, and what a model is told of them all."""

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
The loop: `check` a kernel; if it failed, `diagnose` it, mend the line it names, `check` again; when it passed,
`profile` it and change what limits it. `explain` a finding's code; `show` registers, spills, PTX or SASS.
Give a file by `path`, or a draft as `text` (isolated). A file says how it is launched in `// weft:` lines at its head;
for one that has none the error holds a draft. Cycles are modelled, never measured. `not_judged` is not `passed`."""
TOOLS = (check, diagnose, profile, show, explain, evolve_status)


def make_server() -> MCPServer[object]:
    """With every tool; none of them changes a file of the user's."""
    server: MCPServer[object] = MCPServer(
        "weft", instructions=INSTRUCTIONS, version=weft.__version__, log_level="WARNING"
    )
    for tool in TOOLS:
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    return server


def serve() -> None:
    """Until the client closes standard input. The SDK keeps standard output to itself: prints go to standard error."""
    make_server().run("stdio")
