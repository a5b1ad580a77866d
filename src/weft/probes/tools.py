"""The checkers, by their names in compute-sanitizer, and the instrumentation of each."""

from collections.abc import Callable, Iterable, Mapping

from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .combine import Probes
from .initcheck import InitCheck
from .racecheck import RaceCheck
from .shared_probe import SharedProbe
from .wavefronts import Wavefronts

ALWAYS_ON = ("memcheck", "synccheck")
"""Part of the virtual GPU: every run has them."""

PROBES: Mapping[str, Callable[[], SharedProbe]] = {
    "initcheck": InitCheck,
    "racecheck": RaceCheck,
    "wavefronts": Wavefronts,
}

CHECKERS = ("memcheck", "initcheck", "racecheck", "synccheck")
"""The checkers that `all` stands for."""


LOOKS_FOR: Mapping[str, str] = {"initcheck": "uninitialised reads", "racecheck": "races"}
"""Optional checker → what it finds."""


def checkers_of(tools: Iterable[str]) -> tuple[str, ...]:
    """Return the checkers that watch a run with these tools."""
    asked = set(tools)
    return tuple(name for name in CHECKERS if name in ALWAYS_ON or name in asked or "all" in asked)


def watch_for(tools: Iterable[str]) -> Instrumentation:
    """Return the instrumentation of these tools; `all` stands for every checker, not for the counters."""
    names = [name for tool in tools for name in (CHECKERS if tool == "all" else (tool,))]
    for name in names:
        if name not in PROBES and name not in ALWAYS_ON:
            known = (*CHECKERS, "wavefronts", "all")
            raise UsageError(f"there is no tool {name!r}{did_you_mean(name, known)}; the tools are {', '.join(known)}")
    probes = [PROBES[name]() for name in dict.fromkeys(names) if name in PROBES]
    return Probes(*probes) if probes else PLAIN
