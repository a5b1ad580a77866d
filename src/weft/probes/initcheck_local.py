"""initcheck on local memory: its words are interleaved by lane, so its shadow is looked at word by word.

void probe.init.local.{load,store}.<bytes> (warp, site, <32 x i32> offsets, i32 lanes)
"""

from weft.vm.context import WARP_LOCAL_WRITTEN
from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.memory import LOCAL_BASE
from weft.vm.runtime.shape import LANE_NUMBERS, bits, function, get, symbol, unbits, when

from .initcheck_reports import UNWRITTEN_LOCAL, interleaved
from .shadow import gather, scatter

LOCAL_SIZES = (1, 2, 4, 8, 16, 32)
_WORDS = vec("i32")
_LINE_BYTES = 4 * LANES


def local_name(verb: str, size: int) -> str:
    """The runtime function for an access of `size` bytes per lane."""
    return f"probe.init.local.{verb}.{size}"


def local_function(verb: str, size: int, report: str) -> Builder:
    """Check or mark the bytes of the lanes that are on; `report` says which were not written."""
    params = [("ptr", "warp"), ("i32", "site"), (_WORDS, "offsets"), ("i32", "lanes")]
    b = function(local_name(verb, size), "void", params)
    offsets, lanes = b.param("offsets"), b.param("lanes")
    shadow = get(b, b.param("warp"), WARP_LOCAL_WRITTEN)
    aligned = b.op("and", offsets, const(_WORDS, -4))
    first = b.cast("zext", interleaved(b, aligned, LANE_NUMBERS), vec("i64"))
    on = unbits(b, lanes)
    # The bytes of each word that the access covers, as bits; words of a wide access are covered whole.
    covered = const(_WORDS, -1)
    if size < 4:
        shift = b.op("shl", b.op("and", offsets, const(_WORDS, 3)), const(_WORDS, 3))
        covered = b.op("shl", const(_WORDS, (1 << 8 * size) - 1), shift)
    missing = const("i32", 0)
    for word in range(max(size // 4, 1)):
        places = b.offset(b.offset(shadow, word * _LINE_BYTES), first)
        known = gather(b, places, on, const(_WORDS, -1))
        if verb == "store":
            scatter(b, b.op("or", known, covered), places, on)
        else:
            missing = b.op("or", missing, bits(b, b.icmp("ne", b.op("and", known, covered), covered)))
    if verb == "load":
        _report(b, b.op("and", missing, lanes), size, report, shadow)
    b.ret()
    return b


def _report(b: Builder, missing: Value, size: int, report: str, shadow: Value) -> None:
    with when(b, b.icmp("ne", missing, const("i32", 0)), likely=False):
        where = [shadow, const("i64", LOCAL_BASE), b.param("offsets"), const("i32", size), missing]
        b.call(symbol(report), "void", [b.param("warp"), b.param("site"), const("i32", UNWRITTEN_LOCAL), *where])
