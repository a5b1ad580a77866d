"""The effect of an access on the shadow of some bytes: whether it conflicts, and the state it leaves."""

from weft.vm.ir import Builder, Value, const, lanes_of

from .lane_shadow import EPOCH_SHIFT, SEVERAL, WRITTEN, Entries
from .shadow import Piece, either

READERS, STORED, ATOMIC, ATOMICS, IN_FLIGHT = 0x3F, 0x40, 0x80, 0xBF, 0xC0
"""States of a shadow byte; the table is in racecheck.py."""


class Step:
    """The effect of an access on some bytes: on their state, <N x i8>, and on their lane entries, <N x i16>."""

    def __init__(self, b: Builder, piece: Piece, entries: Entries, me: Value, epoch: Value) -> None:
        self.b, self.piece, self.entries = b, piece, entries
        self.count = lanes_of(piece.value.ty)
        self.state = piece.value
        self.me = self.splat(me)
        self.epoch = b.splat(epoch, self.count)
        old = entries.value
        self.owner_is_me = b.icmp("eq", b.op("and", self.state, const(self.state.ty, READERS)), self.me)
        fresh = b.icmp("ult", b.op("xor", old, self.epoch), const(old.ty, 1 << EPOCH_SHIFT))
        self.valid = b.op("and", fresh, self.owner_is_me)
        who = b.op("and", old, const(old.ty, 0x3F))
        single = b.icmp("ult", who, const(old.ty, SEVERAL))
        same = b.op("and", b.icmp("eq", who, entries.lane), single)
        self.other = b.op("and", self.valid, b.op("xor", same, const(same.ty, 1)))
        """Whether another lane of this warp accessed it since the warp's last synchronisation."""

    def splat(self, scalar: Value) -> Value:
        return self.b.splat(scalar, self.count)

    def mark(self, bit: int) -> Value:
        return self.b.op("or", self.me, const(self.me.ty, bit))

    def none_of(self, others: list[Value]) -> Value:
        return either(self.b, [self.b.icmp("ne", self.state, other) for other in others], "and")

    def is_written(self) -> Value:
        """Whether it was written in this epoch by a lane of this warp."""
        old = self.entries.value
        return self.b.icmp("ne", self.b.op("and", old, const(old.ty, WRITTEN)), const(old.ty, 0))

    def restless(self, verb: str) -> Value:
        """<N x i1>: bytes that this access changes or conflicts with."""
        b = self.b
        if verb == "copy":
            return const(f"<{self.count} x i1>", 1)
        settled = [self.mark(STORED)]
        if verb == "load":
            settled += [self.me, const(self.state.ty, READERS)]
        moves = b.icmp("ne", self.lane_after(verb), self.entries.value)
        shared = b.icmp("eq", self.state, const(self.state.ty, READERS))
        if verb == "load":  # where several warps read, the lane does not matter
            moves = b.op("and", moves, b.op("xor", shared, const(shared.ty, 1)))
        return b.op("or", self.none_of(settled), moves)

    def conflict(self, verb: str) -> Value:
        """<N x i1>: an earlier access conflicts with this one."""
        b, state = self.b, self.state
        if verb == "load":
            written = b.icmp("uge", state, const(state.ty, STORED))
            foreign = b.op("and", written, self.none_of([self.mark(STORED), self.mark(ATOMIC)]))
            return b.op("or", foreign, b.op("and", self.other, self.is_written()))
        peaceful = [const(state.ty, 0), self.me, self.mark(STORED)]
        if verb == "atomic":
            kind = b.op("and", state, const(state.ty, 0xC0))
            foreign = b.icmp("ne", kind, const(state.ty, ATOMIC))
            among = b.op("and", self.other, b.icmp("ne", state, self.mark(ATOMIC)))
            return b.op("or", b.op("and", foreign, self.none_of(peaceful)), among)
        peaceful.append(self.mark(ATOMIC))
        return b.op("or", self.none_of(peaceful), self.other)

    def not_stored(self) -> Value:
        """<N x i1>: the earlier accesses were not plain stores, or there were none."""
        state = self.state
        return self.b.icmp("ne", self.b.op("and", state, const(state.ty, 0xC0)), const(state.ty, STORED))

    def state_joined(self) -> Value:
        """The state left by a store that other warps may have made too: it has no owner, so any read conflicts."""
        b = self.b
        mine = b.op("or", self.not_stored(), self.owner_is_me)
        return b.select(mine, self.mark(STORED), const(self.state.ty, STORED | READERS))

    def state_after(self, verb: str) -> Value:
        """The state an access leaves. A load that conflicts changes nothing; a warp that writes owns the byte."""
        b, state = self.b, self.state
        untouched = b.icmp("eq", state, const(state.ty, 0))
        written, atomic = self.mark(STORED), self.mark(ATOMIC)
        if verb == "store":
            return written
        if verb == "copy":
            return self.mark(IN_FLIGHT)
        if verb == "load":
            # A plain read after the warp's own atomic: other warps' atomics conflict with it from now on.
            own = b.select(b.icmp("eq", state, atomic), written, state)
            unwritten = b.icmp("ult", state, const(state.ty, STORED))
            alone = b.op("or", untouched, b.icmp("eq", state, self.me))
            return b.select(unwritten, b.select(alone, self.me, const(state.ty, READERS)), own)
        atomics = b.icmp("eq", b.op("and", state, const(state.ty, 0xC0)), const(state.ty, ATOMIC))
        several = b.select(b.icmp("eq", state, atomic), atomic, const(state.ty, ATOMICS))
        return b.select(untouched, atomic, b.select(atomics, several, written))

    def lane_after(self, verb: str) -> Value:
        """The lane entry an access leaves."""
        b, old = self.b, self.entries.value
        mine = b.op("or", self.epoch, self.entries.lane)
        if verb not in ("load", "atomic"):
            return b.op("or", mine, const(old.ty, WRITTEN))
        among = b.op("or", self.epoch, const(old.ty, SEVERAL))
        if verb == "atomic":
            return b.op("or", b.select(self.other, among, mine), const(old.ty, WRITTEN))
        kept = b.op("or", among, b.op("and", old, const(old.ty, WRITTEN)))
        return b.select(self.valid, b.select(self.other, kept, old), mine)
