"""What the tags of stored results say is odd, in words."""

from .board import Board, Oddity
from .tags import Flag, Kind, Sizes, Tags
from .taps import Fact

_WORDS: dict[Oddity | Flag, tuple[str, str]] = {
    Flag.INNER: ("inner_mismatch", "products of Q and K in different columns are summed: not Q·Kᵀ"),
    Flag.KEYS: ("mixed_keys", "one score sums products with several keys"),
    Flag.KEY: ("key_mismatch", "the weight of one key multiplies the value of another"),
    Flag.HEAD: ("head_mismatch", "a query meets a key or value of a head that is not its own"),
    Flag.REPEATED: ("repeated_keys", "a key is counted twice"),
    Flag.ROWS: ("mixed_rows", "values of different query rows meet"),
    Flag.COLUMNS: ("mixed_columns", "one element of U sums several columns of V"),
    Flag.TIMES_L: ("times_l", "U is multiplied by l"),
    Flag.UNWEIGHTED: ("unweighted", "V is multiplied by scores that no exponential has seen"),
    Oddity.UNEXPLAINED: ("unexplained", "what is stored in O is not a sum of weighted V"),
    Oddity.MISSING_KEYS: ("missing_keys", "keys in sight are missing from the sum"),
    Oddity.OTHER_ROW: ("other_row", "O holds what was computed for another row"),
    Oddity.OTHER_COLUMN: ("other_column", "O holds what was computed for another column"),
}
_ORDER = tuple(_WORDS)


def facts_of(board: Board, sizes: Sizes) -> tuple[Fact, ...]:
    """Causes before consequences."""
    facts = []
    for what in _ORDER:
        if what not in board.odd:
            continue
        count, row, tag = board.odd[what]
        code, words = _WORDS[what]
        pairs = board.examples.get(what, []) if isinstance(what, Flag) else []
        shown = "; ".join(dict.fromkeys(f"{describe(a, sizes)} with {describe(b, sizes)}" for a, b in pairs))
        if what is Oddity.MISSING_KEYS:
            shown = _missing(board, row, tag)
        elif not isinstance(what, Flag):
            shown = describe(tag, sizes)
        facts.append(Fact(code, f"{words}: {shown}" if shown else words, count, _query(row, sizes)))
    return tuple(facts)


def describe(tag: Tags, sizes: Sizes) -> str:
    """q[0, 1, 5, 3], scores[0, 1, 5 → key 7] …"""
    kind, row, col = Kind(int(tag["kind"])), int(tag["row"]), int(tag["col"])
    shape = sizes.shape
    if kind in (Kind.K, Kind.V):
        return f"{kind.name.lower()}[{_place(row, shape.hkv, shape.skv)}, {_number(col)}]"
    if kind in (Kind.S, Kind.X, Kind.P):
        key = _place(col, shape.hkv, shape.skv)
        return f"{kind.name.lower()}[{_place(row, shape.hq, shape.sq)}] of key [{key}]"
    if kind in (Kind.CONST, Kind.MIX):
        return "a constant" if kind is Kind.CONST else "something no rule explains"
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
    """The keys that the first result lacks."""
    lacking = [
        64 * word + bit
        for word, bits in enumerate(board.visible[row] & ~tag["terms"])
        for bit in range(64)
        if int(bits) >> bit & 1
    ]
    text = ", ".join(map(str, lacking[:8])) + (" …" if len(lacking) > 8 else "")
    return f"{len(lacking)} keys ({text})"
