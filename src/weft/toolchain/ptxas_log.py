"""The verbose log of ptxas → the resources that each kernel needs, and notes about code that it changed."""

import re

from weft.core.records import AssemblerNote, Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")
_NOTE = re.compile(r"ptxas info\s*: \((C75\d\d)\) (?:Potential Performance Loss: )?(.*)")
_FUNCTION = re.compile(r"\s*in (?:the )?function '([^']+)'")
_LINE = re.compile(r"\s*in (?:around )?line (\d+)")


def parse_resources(log: str) -> dict[str, Resources]:
    """Return the resources by mangled entry name. Frame and spills exclude those of the functions that it calls."""
    found: dict[str, Resources] = {}
    entry = function = ""
    frames: dict[str, tuple[int, int, int]] = {}
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            frames[function] = (int(match[1]), int(match[2]), int(match[3]))
        elif entry and (match := _USED.search(line)):
            stack, stores, loads = frames.get(entry, (0, 0, 0))
            shared = _SHARED.search(line)
            found[entry] = Resources(
                registers=int(match[1]),
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                static_shared_bytes=int(shared[1]) if shared else 0,
                local_bytes=stack,
                constant_bytes=sum(int(size) for size in _CONSTANT.findall(line)),
            )
    return found


def parse_notes(log: str) -> tuple[AssemblerNote, ...]:
    """Return the notes about products of a warpgroup and about `setmaxnreg` (C75xx), each once."""
    found = []
    for line in log.splitlines():
        if match := _NOTE.search(line):
            function, at = _FUNCTION.search(match[2]), _LINE.search(match[2])
            words = _LINE.sub("", _FUNCTION.sub("", match[2])).rstrip(". ")
            note = AssemblerNote(match[1], words, function[1] if function else "", int(at[1]) if at else 0)
            found.append(note)
    return tuple(dict.fromkeys(found))
