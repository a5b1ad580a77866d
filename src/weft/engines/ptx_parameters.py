"""The parameter list of a kernel as its PTX declares it."""

import re
from dataclasses import dataclass

from weft.core.errors import UsageError

_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+(?:\.(?:global|const|shared|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"[\w$%]+(?:\[(?P<count>\d+)\])?"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter. `type` is PTX's (u32, f32 …), or `bytes` for a struct or a 16-bit float."""

    type: str
    size_bytes: int


def parameters(ptx: str, entry: str) -> tuple[Parameter, ...]:
    """The parameters of `entry`, by its name in the PTX."""
    match = re.search(rf"\.entry\s+{re.escape(entry)}\s*(?:\(([^)]*)\))?", ptx)
    if not match:
        raise UsageError(f"no kernel {entry!r} in this PTX")
    found = []
    for param in _PARAM.finditer(match[1] or ""):
        width = int(re.sub(r"\D", "", param["type"])) // 8
        if param["count"]:
            found.append(Parameter("bytes", width * int(param["count"])))
        else:
            found.append(Parameter(param["type"], width))
    return tuple(found)
