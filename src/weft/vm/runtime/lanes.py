"""Exchange between the lanes of a warp: shfl, match, redux.

    <32 x i32> shfl.{up,down,bfly,idx}
               (warp, <32 x i32> a, <32 x i32> b, <32 x i32> c, i32 mask, ptr predicate)
    <32 x i32> match.any.{b32,b64}     (warp, <32 x iN> a, i32 members)
    <32 x i32> match.all.{b32,b64}     (warp, <32 x iN> a, i32 members)  0 unless all values are equal
    <32 x i32> redux.<op>.<type>       (warp, <32 x i32> a, i32 members)  the same in every lane
    <32 x i32> {match,redux}.each.…    (warp, a, <32 x i32> masks, i32 active)  lanes with equal masks are a group
`predicate` receives the i32 mask of lanes whose source is in range, whether they are on or not. A shuffle
takes the register content of the source lane even if that lane is off: PTX does not define the value. The
predicate of match.all is "the result is not 0", because there is always at least one member.
"""

from weft.core.errors import Unsupported

from ..ir import LANES, Builder, Value, const, element, vec
from .shape import LANE_NUMBERS, Variable, bits, function, loop, unbits
from .watch import Instrumentation

_WORDS = vec("i32")
_REDUX = {
    "add.u32": ("add", 0), "add.s32": ("add", 0), "min.u32": ("umin", -1), "min.s32": ("smin", (1 << 31) - 1),
    "max.u32": ("umax", 0), "max.s32": ("smax", -(1 << 31)),
    "and.b32": ("and", -1), "or.b32": ("or", 0), "xor.b32": ("xor", 0),
}  # fmt: skip
"""Name of the LLVM reduction and its neutral element."""


def build_lanes(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`; watchers see no event when lanes exchange values."""
    opcode, _, rest = name.partition(".")
    if rest.startswith("each."):
        return [_in_groups(name, opcode, rest.removeprefix("each."))]
    if opcode == "shfl" and rest in ("up", "down", "bfly", "idx"):
        return [_shfl(name, rest)]
    if opcode == "match" and rest in ("any.b32", "any.b64", "all.b32", "all.b64"):
        return [_match(name, rest)]
    if opcode == "redux" and rest in _REDUX:
        return [_redux(name, *_REDUX[rest])]
    raise Unsupported(f"runtime function {name}")


# -- shfl -----------------------------------------------------------------------------------------------


def _shfl(name: str, mode: str) -> Builder:
    params = [
        ("ptr", "warp"),
        (_WORDS, "a"),
        (_WORDS, "b"),
        (_WORDS, "c"),
        ("i32", "mask"),
        ("ptr", "predicate"),
    ]
    b = function(name, _WORDS, params)
    if mode == "bfly":
        _butterfly(b)
    elif mode == "idx":
        _broadcast(b)
    lane, distance = LANE_NUMBERS, b.op("and", b.param("b"), const(_WORDS, 31))
    segment = b.op("and", b.op("lshr", b.param("c"), const(_WORDS, 8)), const(_WORDS, 31))
    within = b.op("xor", segment, const(_WORDS, 31))
    first = b.op("and", lane, segment)
    last = b.op("or", first, b.op("and", b.param("c"), within))
    match mode:
        case "up":
            source = b.op("sub", lane, distance)
        case "down":
            source = b.op("add", lane, distance)
        case "bfly":
            source = b.op("xor", lane, distance)
        case _:
            source = b.op("or", first, b.op("and", distance, within))
    in_range = b.icmp("sge" if mode == "up" else "sle", source, last)
    b.store(bits(b, in_range), b.param("predicate"), align=4)
    b.ret(_picked(b, b.param("a"), b.select(in_range, source, lane)))
    return b


def _picked(b: Builder, a: Value, source: Value) -> Value:
    """Return a[source] for source lanes below 32: through memory, which every CPU supports."""
    slot = b.alloca(_WORDS)
    b.store(a, slot, align=64)
    pointers = b.emit(vec("ptr"), f"getelementptr i32, ptr {slot.ref}, {source.ty} {source.ref}")
    gather, lanes = "llvm.masked.gather.v32i32.v32p0", vec("i1")
    b.declarations.setdefault(gather, f"declare {_WORDS} @{gather}({pointers.ty}, {lanes}, {_WORDS})")
    everywhere = const(lanes, 1).ref
    arguments = f"{pointers.ty} align 4 {pointers.ref}, {lanes} {everywhere}, {_WORDS} poison"
    return b.emit(_WORDS, f"call {_WORDS} @{gather}({arguments})")


def _same_everywhere(b: Builder, distance: Value, plain: str, general: str) -> None:
    """Branch to `plain` if all lanes use one distance below 32 over the entire warp (c = 31)."""
    one = bits(b, b.icmp("eq", b.param("b"), b.splat(distance)))
    whole = bits(b, b.icmp("eq", b.param("c"), const(_WORDS, 31)))
    small = b.icmp("ult", distance, const("i32", LANES))
    b.cbr(b.op("and", small, b.icmp("eq", b.op("and", one, whole), const("i32", -1))), plain, general)


def _butterfly(b: Builder) -> None:
    """Write the steps of a tree reduction as constant permutations."""
    distance = b.extract(b.param("b"), 0)
    plain, general = b.label("plain"), b.label("general")
    steps = {step: b.label(f"step{step}") for step in (1, 2, 4, 8, 16)}
    _same_everywhere(b, distance, plain, general)
    b.place(plain)
    b.switch(distance, general, steps.items())
    for step, label in steps.items():
        b.place(label)
        b.store(const("i32", -1), b.param("predicate"), align=4)
        b.ret(b.shuffle(b.param("a"), None, [lane ^ step for lane in range(LANES)]))
    b.place(general)


def _broadcast(b: Builder) -> None:
    """Write one source lane for all."""
    distance = b.extract(b.param("b"), 0)
    plain, general = b.label("plain"), b.label("general")
    _same_everywhere(b, distance, plain, general)
    b.place(plain)
    b.store(const("i32", -1), b.param("predicate"), align=4)
    b.ret(b.splat(b.extract(b.param("a"), distance)))
    b.place(general)


# -- match and redux ------------------------------------------------------------------------------------


def _match(name: str, rest: str) -> Builder:
    b = function(name, _WORDS, [("ptr", "warp"), (_compared(rest), "a"), ("i32", "members")])
    b.ret(_matched(b, rest, b.param("members")))
    return b


def _compared(rest: str) -> str:
    """Return the type of the values of `any.b64`."""
    return vec(f"i{rest.partition('.b')[2]}")


def _matched(b: Builder, rest: str, members: Value) -> Value:
    a = b.param("a")
    if rest.startswith("all."):
        equal = _equal_to_first(b, a, members)
        return b.splat(b.select(b.icmp("eq", equal, members), members, const("i32", 0)))
    result, left = Variable(b, const(_WORDS, 0)), Variable(b, members)
    with loop(b, lambda: b.icmp("ne", left.get(), const("i32", 0))):
        now = left.get()
        equal = _equal_to_first(b, a, now)
        result.set(b.select(unbits(b, equal), b.splat(equal), result.get()))
        left.set(b.op("xor", now, equal))
    return result.get()


def _equal_to_first(b: Builder, a: Value, lanes: Value) -> Value:
    """Return the lanes of a mask with the value of its lowest lane; the mask may be empty."""
    first = b.op("and", b.intrinsic("cttz", "i32", [lanes, const("i1", 0)]), const("i32", 31))
    return b.op("and", lanes, bits(b, b.icmp("eq", a, b.splat(b.extract(a, first)))))


def _redux(name: str, operation: str, neutral: int) -> Builder:
    b = function(name, _WORDS, [("ptr", "warp"), (_WORDS, "a"), ("i32", "members")])
    b.ret(_reduced(b, operation, neutral, b.param("members")))
    return b


def _reduced(b: Builder, operation: str, neutral: int, members: Value) -> Value:
    values = b.select(unbits(b, members), b.param("a"), const(_WORDS, neutral))
    return b.splat(b.intrinsic(f"vector.reduce.{operation}", element(_WORDS), [values], overloads=[_WORDS]))


def _in_groups(name: str, opcode: str, rest: str) -> Builder:
    """Write the collective of lanes that are at one instruction with different member masks (PTX ISA: a lane waits for
    those with the same mask)."""
    values = _compared(rest) if opcode == "match" else _WORDS
    b = function(name, _WORDS, [("ptr", "warp"), (values, "a"), (_WORDS, "masks"), ("i32", "active")])
    masks = b.param("masks")
    result, left = Variable(b, const(_WORDS, 0)), Variable(b, b.param("active"))
    with loop(b, lambda: b.icmp("ne", left.get(), const("i32", 0))):
        now = left.get()
        group = _equal_to_first(b, masks, now)
        mask = b.extract(masks, b.op("and", b.intrinsic("cttz", "i32", [now, const("i1", 0)]), const("i32", 31)))
        members = b.op("and", group, mask)
        found = _matched(b, rest, members) if opcode == "match" else _reduced(b, *_REDUX[rest], members)
        result.set(b.select(unbits(b, group), found, result.get()))
        left.set(b.op("xor", left.get(), group))
    b.ret(result.get())
    return b
