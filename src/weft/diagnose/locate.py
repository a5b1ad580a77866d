"""Runs a kernel, follows some of its CTAs, and returns the values they held at each stage.

taps = locate(kernel, {"q": q, "k": k, "v": v}, algorithm, causal="top_left")
taps.at("scores", tile=1).values
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.reference import Causal, mask_for, shape_of
from weft.attention.shapes import Shape
from weft.core.chips import DEFAULT_GPU
from weft.core.errors import UsageError
from weft.core.records import Run
from weft.engines.kernel_file import KernelFile
from weft.engines.virtual import VirtualGPU

from .acts import FirstLoads
from .algebra import Algebra
from .arithmetic import ARITHMETIC
from .board import Board, Oddity, Sheet
from .capped_algebra import CappedAlgebra
from .nodes import Nodes
from .provenance import ROLES, Provenance
from .record import Position, RecordingGPU
from .tags import Flag, Ids, Kind, Sizes, Tags
from .taps import TAPPED, WITHOUT_TILES, Fact, Key, StageTap, Taps, own_line

LARGEST_KEYS = 512
"""Recording executes thousands of instructions per second, not millions: shrink a case first."""


@dataclass(frozen=True)
class Packed:
    """Arrays of a kernel that are not dense."""

    shape: Shape
    """Of the dense arrays."""
    element_numbers: Mapping[str, Array]
    """By array: which element of the dense array each of its elements is, -1 for none."""


Runner = Callable[[VirtualGPU, Mapping[str, Array]], tuple[Run, Mapping[str, Array]]]
"""Launches a kernel on copies of the arrays; returns its run and every array. Launches must name their arguments."""


_WORDS: dict[Oddity | Flag, tuple[str, str]] = {
    Flag.INNER: ("inner_mismatch", "products of Q and K in different columns are summed: not Q·Kᵀ"),
    Flag.KEYS: ("mixed_keys", "one score sums products with several keys"),
    Flag.KEY: ("key_mismatch", "the weight of one key multiplies the value of another"),
    Flag.HEAD: ("head_mismatch", "a query is combined with a key or value of another head"),
    Flag.REPEATED: ("repeated_keys", "a key is counted twice"),
    Flag.ROWS: ("mixed_rows", "values of different query rows are combined"),
    Flag.COLUMNS: ("mixed_columns", "one element of U sums several columns of V"),
    Flag.TIMES_L: ("times_l", "U is multiplied by l"),
    Flag.UNWEIGHTED: ("unweighted", "V is multiplied by scores without an exponential"),
    Oddity.UNEXPLAINED: ("unexplained", "the value stored in O is not a sum of weighted V"),
    Oddity.CONSTANT: ("constant", "no visible key entered the value stored in O"),
    Oddity.MISSING_KEYS: ("missing_keys", "visible keys are missing from the sum"),
    Oddity.FEW_KEYS_IN_L: ("few_keys_in_l", "O is divided by an l that lacks visible keys"),
    Oddity.OTHER_ROW: ("other_row", "O contains the result of another row"),
    Oddity.OTHER_COLUMN: ("other_column", "O contains the result of another column"),
}

_ORDER = tuple(_WORDS)


def locate(
    kernel: KernelFile,
    arrays: Mapping[str, Array],
    algorithm: Algorithm,
    *,
    causal: Causal = None,
    mask: Array | None = None,
    position: Position = (0, 0),
    whole: bool = True,
    packed: Packed | None = None,
    capped: bool = False,
) -> Taps:
    """Return the stages of the CTAs at `position` (blockIdx.x, blockIdx.y; all z). `arrays` are not changed.

    `mask`, (sq, skv) or (b, 1, sq, skv), replaces that of `causal`; `packed` tells where arrays that are not dense have
    the elements of dense ones; with `capped`, functions of one score are followed as this score. Without `whole`
    nothing else runs: `Taps.run` and `Taps.arrays` are those of these CTAs alone.

    A kernel whose maxima show tiles of another size than the algorithm's is followed again, with that size;
    `Taps.algorithm` is the one that was used.
    """
    return locate_run(
        kernel.run,
        arrays,
        algorithm,
        causal=causal,
        mask=mask,
        position=position,
        gpu=kernel.gpu,
        whole=whole,
        packed=packed,
        capped=capped,
    )


def locate_run(
    run: Runner,
    arrays: Mapping[str, Array],
    algorithm: Algorithm,
    *,
    causal: Causal = None,
    mask: Array | None = None,
    position: Position = (0, 0),
    gpu: str = DEFAULT_GPU,
    whole: bool = True,
    packed: Packed | None = None,
    capped: bool = False,
) -> Taps:
    """Do the same for launches of any kind, including Triton: `gpu.launch(…, names=("q", "k", "v", "o", …))`."""
    roles = {role: name for role in ("q", "k", "v") for name in ROLES[role] if name in arrays}
    if len(roles) < 3:
        raise UsageError(f"taps need q, k and v (or q_code …), not {', '.join(arrays)}")
    shape = packed.shape if packed is not None else shape_of(*(arrays[roles[role]] for role in ("q", "k", "v")))
    sizes = Sizes(shape)

    seen = mask_for(sizes.shape, causal, mask)

    def follow(algorithm: Algorithm) -> tuple[Taps, int | None]:
        provenance = trace(sizes, algorithm, seen, capped=capped)
        provenance.element_numbers = packed.element_numbers if packed is not None else {}
        provenance.seed({role: (name, arrays[name]) for role, name in roles.items()})
        recording = RecordingGPU(gpu, provenance, position, whole=whole)
        outcome, left = run(recording, {name: array.copy() for name, array in arrays.items()})
        taps = collect(provenance, algorithm, recording, run=outcome, arrays=left)
        return taps, provenance.board.own_block()

    taps, own = follow(algorithm)
    keys = sizes.shape.skv
    if own is None or min(own, keys) == min(algorithm.block_n, keys):
        return taps
    return follow(replace(algorithm, block_n=own))[0]


def trace(sizes: Sizes, algorithm: Algorithm, mask: Array, *, capped: bool = False) -> Provenance:
    """Return an observer for a run of these sizes and this mask, (sq, skv) or (b, 1, sq, skv); its inputs must still be
    seeded.
    """
    shape = sizes.shape
    if shape.skv > LARGEST_KEYS:
        raise UsageError(f"{shape.skv} keys are too many to record; use at most {LARGEST_KEYS}")
    keys = np.bitwise_or.reduce(np.where(mask[..., None], sizes.bit(np.arange(shape.skv)), np.uint64(0)), axis=-2)
    of_rows = np.broadcast_to(keys, (shape.b, shape.hq, shape.sq, keys.shape[-1])).reshape(-1, keys.shape[-1])
    board = Board(sizes, of_rows, algorithm.block_n, algorithm.splits)
    return Provenance(Nodes(sizes), CappedAlgebra(sizes) if capped else Algebra(sizes), board, ARITHMETIC)


def collect(
    provenance: Provenance, algorithm: Algorithm, gpu: RecordingGPU, *, run: Run, arrays: Mapping[str, Array]
) -> Taps:
    """Return what the board recorded in the run, stage by stage and tile by tile."""
    board = provenance.board
    board.settle()
    unit = next(iter(board.units)) if len(board.units) == 1 else None
    base = next((base for base in (math.e, 2.0) if unit is not None and _near(unit, math.log(base))), None)
    if base is not None:
        algorithm = replace(algorithm, exp_base=base)
    factor = 1.0 if base is not None or unit is None else unit / math.log(algorithm.exp_base)
    taps: dict[Key, StageTap] = {}
    for stage in TAPPED:
        for tile in [None] if stage in WITHOUT_TILES else range(board.tiles):
            tap = _tap(provenance, board.sheets[stage], stage, tile)
            if stage in ("scores", "masked", "m"):
                tap = replace(tap, values=tap.values * factor, factor=factor)
            if tap.observed.any():
                taps[stage, tile] = tap
    factors = {
        (stage, tile): _tap(provenance, board.factors[stage], stage, tile)
        for stage in board.factors
        for tile in ([None] if stage in WITHOUT_TILES else range(board.tiles))
    }
    facts, events = facts_of(board, provenance.nodes), tuple(provenance.nodes.events)
    return Taps(
        algorithm,
        taps,
        facts,
        tuple(board.disagreements),
        events,
        unit,
        run,
        dict(arrays),
        gpu.recorded_instructions,
        _by_head(provenance.acts.fetches, board.sizes.shape),
        _by_head(provenance.acts.reads, board.sizes.shape),
        tuple(provenance.acts.found.values()),
        factors,
        tuple(provenance.acts.written.values()),
        gpu.cut_short,
    )


def _near(a: float, b: float) -> bool:
    return abs(a - b) < 1e-3 * b


def _tap(provenance: Provenance, sheet: Sheet, stage: str, tile: int | None) -> StageTap:
    board, nodes = provenance.board, provenance.nodes
    shape = board.sizes.shape

    def cut(values: Array) -> Array:
        whole = values.reshape(*_heads(stage, shape), *values.shape[1:])
        if tile is None:
            return whole
        keys = slice(tile * board.block_n, (tile + 1) * board.block_n)
        if stage in ("k", "v"):
            return whole[:, :, keys]
        return whole[..., keys] if stage in ("products", "scores", "masked", "p") else whole[:, :, :, tile]

    event = cut(sheet.event)
    terms = board.covered.get(stage)
    keys = None if terms is None else _unpacked(cut(terms), shape.skv)
    node, lane = cut(sheet.node), cut(sheet.lane)
    made = np.where(node == 0, event, nodes.event_of[node])
    made_lane = np.where(node == 0, lane, nodes.lane_of[node])
    return StageTap(stage, tile, cut(sheet.values), event != 0, event, lane, made, made_lane, keys)


def _heads(stage: str, shape: Shape) -> tuple[int, int, int]:
    return (shape.b, shape.hkv, shape.skv) if stage in ("k", "v") else (shape.b, shape.hq, shape.sq)


def _by_head(loads: FirstLoads, shape: Shape) -> dict[str, Ids]:
    return {stage: events.reshape(*_heads(stage, shape), -1) for stage, events in loads.events.items()}


def _unpacked(terms: Array, count: int) -> Array:
    return np.unpackbits(np.ascontiguousarray(terms).view(np.uint8), axis=-1, bitorder="little")[..., :count].view(bool)


def facts_of(board: Board, nodes: Nodes) -> tuple[Fact, ...]:
    """Return in words what the tags of stored results show to be wrong, causes before consequences."""
    facts, sizes = [], board.sizes
    for what in _ORDER:
        if what not in board.odd:
            continue
        count, row, tag = board.odd[what]
        code, words = _WORDS[what]
        pairs = board.examples.get(what, []) if isinstance(what, Flag) else []
        shown = "; ".join(dict.fromkeys(f"{describe(a, sizes)} with {describe(b, sizes)}" for a, b in pairs))
        if what in (Oddity.MISSING_KEYS, Oddity.FEW_KEYS_IN_L):
            shown = _missing(board, row, tag)
        elif not isinstance(what, Flag):
            shown = describe(tag, sizes)
        made = int(nodes.event_of[int(tag["source"])]) if what is Oddity.FEW_KEYS_IN_L else board.raised.get(what, 0)
        place = own_line(nodes.events[made].place)
        message = f"{words}: {shown}" if shown else words
        facts.append(Fact(code, message, count, _query(row, sizes), place, made))
    return tuple(facts)


def describe(tag: Tags, sizes: Sizes) -> str:
    """Return an element in words: q[0, 1, 5, 3], scores[0, 1, 5 → key 7] and so on."""
    kind, row, col = Kind(int(tag["kind"])), int(tag["row"]), int(tag["col"])
    shape = sizes.shape
    if kind in (Kind.K, Kind.V):
        return f"{kind.name.lower()}[{_place(row, shape.hkv, shape.skv)}, {_number(col)}]"
    if kind in (Kind.S, Kind.X, Kind.P):
        key = _place(col, shape.hkv, shape.skv)
        return f"{kind.name.lower()}[{_place(row, shape.hq, shape.sq)}] of key [{key}]"
    if kind in (Kind.CONST, Kind.MIX):
        return "a constant" if kind is Kind.CONST else "an unknown value"
    column = f", {_number(col)}" if kind in (Kind.Q, Kind.U, Kind.O) else ""
    return f"{kind.name.lower()}[{_place(row, shape.hq, shape.sq)}{column}]"


def _place(flat: int, heads: int, rows: int) -> str:
    if flat < 0:
        return "?"
    head, row = divmod(flat, rows)
    return f"{head // heads}, {head % heads}, {row}"


def _number(value: int) -> str:
    return str(value) if value >= 0 else "?"


def _query(row: int, sizes: Sizes) -> tuple[int, int, int]:
    head, query = divmod(row, sizes.shape.sq)
    batch, head = divmod(head, sizes.shape.hq)
    return batch, head, query


def _missing(board: Board, row: int, tag: Tags) -> str:
    """Return the keys that are missing from the first result."""
    lacking = [
        64 * word + bit
        for word, bits in enumerate(board.visible[row] & ~tag["terms"])
        for bit in range(64)
        if int(bits) >> bit & 1
    ]
    text = ", ".join(map(str, lacking[:8])) + (" …" if len(lacking) > 8 else "")
    return f"{len(lacking)} keys ({text})"
