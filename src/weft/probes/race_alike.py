"""Stores by several threads that are no race: the same instruction with the same value.

Compilers let threads share work that way. A tag (i32) per byte of shared memory holds what happened to it since the
last barrier of the entire CTA: 0 nothing, a site plus one if it was only stored to, by that instruction and always the
same value, otherwise MIXED. The stored value is compared with the memory's content, so the tag needs no value.
"""

from weft.vm.context import WARP_SHARED
from weft.vm.ir import LANES, Builder, Value, const
from weft.vm.memory import SHARED_START
from weft.vm.runtime.access_name import parse_name
from weft.vm.runtime.shape import PREFIX, Variable, each_lane, get

from .shared_probe import Touch, shadow_size

MIXED = -1
TAG_BYTES = 4


def knows_data(b: Builder, touch: Touch) -> bool:
    """Whether the function being built is a store whose data can be read."""
    return touch.verb == "store" and touch.lines is None and b.name.startswith(f"{PREFIX}st.")


def forget_tags(b: Builder, tags: Value, worker: Value) -> None:
    """Set all tags to 0."""
    size = b.op("shl", shadow_size(b, worker), const("i64", 2))
    b.intrinsic("memset", "void", [tags, const("i8", 0), size, const("i1", 0)], overloads=["ptr", "i64"])


def only_alike(b: Builder, tags: Value, touch: Touch) -> Value:
    """i1: each byte of this store is untouched so far, or has seen only this instruction store this value."""
    if not knows_data(b, touch):
        return const("i1", 0)
    alike = Variable(b, const("i1", 1))
    width = parse_name(b.name.removeprefix(PREFIX)).bits // 8
    data = b.param("data")
    if data.ty != "ptr":
        slot = b.alloca(data.ty)
        b.store(data, slot, align=64)
        data = slot
    mine = _tag_of_site(b)
    memory = b.offset(get(b, b.param("warp"), WARP_SHARED), SHARED_START)
    with each_lane(b, touch.lanes) as lane:
        offset = b.cast("zext", b.extract(touch.offsets, lane), "i64")
        register = b.op("mul", b.cast("zext", lane, "i64"), const("i64", width))
        for at in range(touch.bytes):
            tag = b.load("i32", _tag(b, tags, offset, at), align=4)
            row = b.offset(data, at // width * width * LANES + at % width)
            stored = b.load("i8", b.offset(row, register), align=1)
            there = b.load("i8", b.offset(b.offset(memory, at), offset), align=1)
            same = b.op("and", b.icmp("eq", tag, mine), b.icmp("eq", stored, there))
            fits = b.op("or", b.icmp("eq", tag, const("i32", 0)), same)
            alike.set(b.op("and", alike.get(), fits))
    return alike.get()


def leave_tags(b: Builder, tags: Value, touch: Touch, alike: Value) -> None:
    """Update the tags after an access; everything but a store of the same value sets MIXED."""
    tag = b.select(alike, _tag_of_site(b), const("i32", MIXED))
    if touch.lines is not None:
        lines = touch.lines
        start = lines.start
        for _ in range(lines.count):
            for at in range(lines.bytes):
                b.store(tag, _tag(b, tags, start, at), align=4)
            start = b.op("add", start, lines.step)
        return
    with each_lane(b, touch.lanes) as lane:
        offset = b.cast("zext", b.extract(touch.offsets, lane), "i64")
        for at in range(touch.bytes):
            b.store(tag, _tag(b, tags, offset, at), align=4)


def _tag_of_site(b: Builder) -> Value:
    return b.op("add", b.param("site"), const("i32", 1))


def _tag(b: Builder, tags: Value, offset: Value, at: int) -> Value:
    return b.offset(b.offset(tags, TAG_BYTES * at), b.op("shl", offset, const("i64", 2)))
