"""A digest of the stream of events of every CTA: CTAs with equal digests did the same, up to values and global memory.

The stream has the events that the recorder would write, in their order: what happens, at which instruction, by which
warp and lanes, at which shared addresses, and the phases of mbarriers. It leaves out what CTAs with the same work
differ in: the number of the CTA, what is stored, and where in global memory (that it is global memory counts).
`race_streams.py` says when a CTA needs no judgement because one with the same digest was judged.

Each event is reduced to two 64-bit words by NH (RFC 4418, UMAC), a sum of products (m1 + k1) * (m2 + k2) of 32-bit
words m of the event and random words k of the process: two given events agree in both words with a probability of
2^-64, whatever a kernel does, as it does not know k. Both are then mixed into the CTA's digest of 128 bits.
"""

import functools
import os

import numpy as np
import numpy.typing as npt

from weft.vm.context import WARP_ID, WORKER_CTA
from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE
from weft.vm.runtime.shape import Variable, get, unbits, when

from .events import NULL, Events

_WIDE, _PAIRS = vec("i64"), vec("i32", 2 * LANES)
_LINES = 2
"""64-bit words of a digest."""
_DIGESTS, _KEYS = 0, 64
"""In the memory of a worker: the host address of the digests, and the keys."""
_ROW_BYTES = 8 * LANES
_KEYS_OF_LINE = 2 * _ROW_BYTES + 64
"""Of each line: keys for addresses, for words of mbarriers, and for the rest of an event."""
MOST_CTAS = 1 << 20
"""CTAs of a grid whose digests are kept, 16 MB."""
_MIX = 0x9E3779B97F4A7C15


class Stream(Events):
    """Computes the digest of each of the CTAs of a grid."""

    name = "stream"
    add = "probe.stream.add"
    takes_values = False

    def __init__(self, ctas: int) -> None:
        super().__init__()
        self._digests = np.zeros((ctas, _LINES), np.uint64)

    def read(self) -> npt.NDArray[np.uint64]:
        """Return the digest of each CTA, once; zeros if it did not run.

        They are dropped: the functions that were compiled for this watcher keep it for the whole process.
        """
        digests, self._digests = self._digests, np.zeros((0, _LINES), np.uint64)
        return digests

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return _KEYS + _LINES * _KEYS_OF_LINE

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        memory[_DIGESTS : _DIGESTS + 8].view(np.uint64)[0] = self._digests.ctypes.data
        memory[_KEYS : _KEYS + _LINES * _KEYS_OF_LINE] = _keys()

    def functions(self) -> list[Builder]:
        return [self._follow(self.function_for())]

    def _follow(self, b: Builder) -> Builder:
        worker, warp = b.param("worker"), Variable(b, const("i32", LANES))
        with when(b, b.icmp("ne", b.param("warp"), NULL), likely=True):
            warp.set(get(b, b.param("warp"), WARP_ID))
        memory = self.memory(b, worker)
        address, on = b.param("address"), unbits(b, b.param("lanes"))
        own = b.icmp("ult", address, const(_WIDE, GLOBAL_BASE))
        places = b.select(on, b.select(own, address, const(_WIDE, GLOBAL_BASE)), const(_WIDE, 0))
        rest = [b.param(name) for name in ("what", "site", "lanes", "size", "number", "element")] + [warp.get()]
        rest.append(const("i32", 0))
        sums = [Variable(b, const("i64", 0)) for _ in range(_LINES)]
        keys = [b.offset(memory, _KEYS + line * _KEYS_OF_LINE) for line in range(_LINES)]
        for total, key in zip(sums, keys, strict=True):
            total.set(b.op("add", _nh(b, places, key), _nh_of(b, rest, b.offset(key, 2 * _ROW_BYTES))))
        with when(b, b.icmp("ne", b.param("value"), NULL), likely=False):
            words = b.select(on, b.load(_WIDE, b.param("value"), align=8), const(_WIDE, 0))
            for total, key in zip(sums, keys, strict=True):
                total.set(b.op("add", total.get(), _nh(b, words, b.offset(key, _ROW_BYTES))))
        cta = b.op("mul", b.cast("zext", get(b, worker, WORKER_CTA), "i64"), const("i64", 8 * _LINES))
        digest = b.offset(b.load("ptr", b.offset(memory, _DIGESTS), align=8), cta)
        for line, total in enumerate(sums):
            place = b.offset(digest, 8 * line)
            mixed = b.op("xor", b.load("i64", place, align=8), total.get())
            mixed = b.op("mul", b.op("xor", mixed, b.op("lshr", mixed, const("i64", 29))), const("i64", _MIX))
            b.store(b.op("xor", mixed, b.op("lshr", mixed, const("i64", 32))), place, align=8)
        b.ret()
        return b


def _nh(b: Builder, words: Value, key: Value) -> Value:
    """i64: NH of <32 x i64>."""
    keyed = b.op("add", b.cast("bitcast", words, _PAIRS), b.load(_PAIRS, key, align=64))
    keyed = b.cast("bitcast", keyed, _WIDE)
    low, high = b.op("and", keyed, const(_WIDE, 0xFFFFFFFF)), b.op("lshr", keyed, const(_WIDE, 32))
    return b.intrinsic("vector.reduce.add", "i64", [b.op("mul", low, high)], overloads=[_WIDE])


def _nh_of(b: Builder, words: list[Value], key: Value) -> Value:
    """i64: NH of some i32."""
    keyed = [
        b.cast("zext", b.op("add", word, b.load("i32", b.offset(key, 4 * at), align=4)), "i64")
        for at, word in enumerate(words)
    ]
    products = [b.op("mul", keyed[at], keyed[at + 1]) for at in range(0, len(keyed), 2)]
    return functools.reduce(lambda one, other: b.op("add", one, other), products)


@functools.cache
def _keys() -> npt.NDArray[np.uint8]:
    """Return the keys of this process."""
    return np.frombuffer(os.urandom(_LINES * _KEYS_OF_LINE), np.uint8)
