"""Checkers by the names users know from compute-sanitizer → what watches the run."""

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
"""What `all` means."""


def watch_for(tools: Iterable[str]) -> Instrumentation:
    """The instrumentation of these tools; `all` stands for every checker, not for the counters."""
    names = [name for tool in tools for name in (CHECKERS if tool == "all" else (tool,))]
    for name in names:
        if name not in PROBES and name not in ALWAYS_ON:
            known = (*CHECKERS, "wavefronts", "all")
            raise UsageError(f"no tool is called {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    probes = [PROBES[name]() for name in dict.fromkeys(names) if name in PROBES]
    return Probes(*probes) if probes else PLAIN
