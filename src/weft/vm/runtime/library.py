"""Runtime functions by name: built, compiled, cached on disk, and linked into the process on demand."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence

from weft.core.errors import Unsupported

from .. import jit
from ..emit.tensorcore import tensorcore_ir
from ..ir import Builder, module_text
from ..mma_kind import SCALE_TYPES, MmaKind
from . import access, atomics, barriers, bulk, cluster, copies, lanes, mbarrier, registers, scheduler, tiles, warpgroups
from .bounds import OWNERS, PIECE, build_owners, build_piece
from .shape import PREFIX, REPORT, build_report, symbol
from .watch import Instrumentation

Build = Callable[[str, Instrumentation], list[Builder]]

FAMILIES: tuple[tuple[str, Build], ...] = (
    ("ld.", access.build_access),
    ("ldu.", access.build_access),
    ("st.", access.build_access),
    ("atom.", atomics.build_atomic),
    ("cp.", copies.build_copies),
    ("bulk.", bulk.build_bulk),
    ("mbarrier.", mbarrier.build_mbarrier),
    ("ldmatrix.", tiles.build_tiles),
    ("movmatrix", tiles.build_tiles),
    ("wmma.", tiles.build_tiles),
    ("shfl.", lanes.build_lanes),
    ("match.", lanes.build_lanes),
    ("redux.", lanes.build_lanes),
    ("barrier.", barriers.build_arrive),
    ("warp.", barriers.build_order),
    ("fence", barriers.build_order),
    ("products.", barriers.build_order),
    ("warpgroup.", warpgroups.build_warpgroups),
    ("registers.", registers.build_registers),
    ("cluster.", cluster.build_cluster),
    ("peer.", cluster.build_peer),
    ("remote.", cluster.build_remote),
    ("multicast.", cluster.build_multicast),
    ("run", scheduler.build_run),
    (REPORT, lambda name, watch: [build_report()]),
    (OWNERS, lambda name, watch: [build_owners(name)]),
    (PIECE, lambda name, watch: [build_piece(name)]),
)


class Library:
    """The runtime functions of one instrumentation; each is compiled once per machine and loaded once per process."""

    def __init__(self, watch: Instrumentation) -> None:
        self.watch = watch
        self.addresses: dict[str, int] = {}
        self._code: list[Mapping[str, int]] = []
        self.lock = threading.RLock()

    def address(self, name: str) -> int:
        """Return the address of the function `name` in this process."""
        with self.lock:
            if name not in self.addresses:
                self.addresses[name] = self._load(name)
            return self.addresses[name]

    def _load(self, name: str) -> int:
        key = jit.object_key("runtime", self.watch.key, name)
        blob = jit.objects().get(key)
        if blob is None:
            blob = _compiled(name, *self.text(name))
            jit.objects().put(key, blob)
        head, _, code = blob.partition(b"\n")
        meta = json.loads(head)
        imports = {needed: self.address(needed[len(PREFIX) :]) for needed in meta["needs"]}
        found = jit.load(code, [meta["export"]], imports, name)
        self._code.append(found)
        return found[meta["export"]]

    def text(self, name: str) -> tuple[str, str]:
        """Return the LLVM IR of a function and the symbol under which it is exported."""
        if name.startswith("mma."):
            exported, text = _tensorcore(name)
            return text, exported
        for prefix, build in FAMILIES:
            if name.startswith(prefix):
                return module_text(build(name, self.watch)), symbol(name)
        for extra in self.watch.functions():
            if extra.name == symbol(name):
                return module_text([extra]), symbol(name)
        raise Unsupported(f"runtime function {name}")


def _compiled(name: str, text: str, exported: str) -> bytes:
    """Return a function's object after a line with its imports; watchers that do not change it share it."""
    key = jit.object_key("text", text)
    blob = jit.objects().get(key)
    if blob is None:
        head = json.dumps({"export": exported, "needs": sorted(_undefined(text))}).encode()
        blob = head + b"\n" + jit.compile_object(text, name, level=2)
        jit.objects().put(key, blob)
    return blob


def _undefined(text: str) -> set[str]:
    """Return the runtime functions that a module declares but does not define."""
    found = set()
    for line in text.splitlines():
        if line.startswith("declare ") and f"@{PREFIX}" in line:
            found.add(line.split("@", 1)[1].split("(", 1)[0])
    return found


def _tensorcore(name: str) -> tuple[str, str]:
    """Build `mma.m16n8k16.f32.f16.f16.f32[.satfinite].hardware.sm_89[.x4]`: x4 is four instructions that share A.

    An f64 kind may have a rounding (`.rz`) in place of `.satfinite`, a scaled one the type and number of its scales
    (`.ue8m0x2`).
    """
    _, shape, d_type, a_type, b_type, c_type, *rest = name.split(".")
    m, _, tail = shape[1:].partition("n")
    n, _, k = tail.partition("k")
    saturate = rest[0] == "satfinite"
    rounding = rest[0] if rest[0] in ("rz", "rm", "rp") else "rn"
    count = int(rest.pop()[1:]) if rest[-1].startswith("x") else 1
    mode, arch = rest[-2:]
    scale, _, scales = rest[0].rpartition("x") if rest[0].startswith(SCALE_TYPES) else ("", "", "0")
    types = (a_type, b_type, c_type, d_type)
    kind = MmaKind(int(m), int(n), int(k), *types, saturate, rounding, scale, int(scales))
    return tensorcore_ir(kind, mode, arch, count=count, embedded_rounding="+avx512f" in jit.host()[1])


_libraries: dict[str, Library] = {}


def library(watch: Instrumentation) -> Library:
    """Return the process-wide library of an instrumentation."""
    if watch.key not in _libraries:
        _libraries[watch.key] = Library(watch)
    return _libraries[watch.key]


def load_for_all(names: Sequence[str]) -> None:
    """Load functions into every library of this process."""
    for each in list(_libraries.values()):
        for name in names:
            each.address(name)
