"""The barriers of cooperative groups of several warps, as CUDA's header implements them (details/sync.h).

Each size of groups (2, 4, 8, 16 and 32 warps) has a word at the start of the system's shared memory. All groups of that
size share it. A warp has a bit there:

    atom.or, red.or    a warp arrives: it sets its bit
    red.and            the last warp releases its group: it clears all bits of the group; or, before the group is first
                       used, a warp clears its own
    ld.acquire         a warp waits until its bit is clear, or (shfl) until the bit of the warp with the value is set

By the words alone a warp that waits would also learn what happened after its release: warps of its group may have
arrived for the next phase, and other groups change the same word. That is an accident of one execution, and would hide
races. So a warp that was released knows what the warps of its group had published at that time, and no more.
"""

from dataclasses import dataclass, field

import numpy as np

from .observation import Ints

_WORDS, _WORD_BYTES = 5, 4
_ALL = 0xFFFFFFFF

Key = tuple[int, int, int]
"""CTA, number of the word, number of the group among those of its size."""


@dataclass
class _Group:
    size: int
    arrived: set[int] = field(default_factory=set)
    """Warps that have arrived and are not released."""
    published: Ints | None = None
    """What they had published when they arrived."""
    released: Ints | None = None
    """What was published at the last release."""
    owing: dict[int, int] = field(default_factory=dict)
    """Warp → its lanes that have not yet learned of the last release."""


class GroupClock:
    """Follows the groups' barriers in a log that is read in order; `words` are generic addresses of the system."""

    def __init__(self, words: range) -> None:
        self._words = range(words.start, words.start + _WORDS * _WORD_BYTES) if words else range(0)
        self._groups: dict[Key, _Group] = {}

    def key(self, cta: int, warp: int, address: int) -> Key | None:
        """Return the group of a warp (numbered in its CTA) that has its barrier at an address; None for others."""
        if address not in self._words:
            return None
        word = (address - self._words.start) // _WORD_BYTES
        return cta, word, warp // (2 << word)

    def _group(self, key: Key) -> _Group:
        return self._groups.setdefault(key, _Group(2 << key[1]))

    def arrive(self, key: Key, warp: int, news: Ints | None) -> Ints | None:
        """Return what a warp learns that arrives and has published `news`: the last one learns from all."""
        group = self._group(key)
        group.arrived.add(warp)
        group.published = _joined(group.published, news)
        return group.published if len(group.arrived) == group.size else None

    def clear(self, key: Key, warp: int, news: Ints | None) -> None:
        """Release the group if all its warps have arrived; otherwise a warp clears its own bit."""
        group = self._group(key)
        if len(group.arrived) < group.size:
            return
        group.released = _joined(group.published, news)
        group.owing = dict.fromkeys(group.arrived - {warp}, _ALL)
        group.arrived.clear()
        group.published = None

    def look(self, key: Key, warp: int, lanes: int) -> list[tuple[int, Ints]]:
        """Return what lanes that read the word learn, as masks of lanes and what these learn."""
        group = self._group(key)
        if warp in group.arrived:
            return []
        owing = group.owing.get(warp, 0)
        group.owing[warp] = owing & ~lanes
        found = [(lanes & owing, group.released), (lanes & ~owing, _joined(group.released, group.published))]
        return [(mask, news) for mask, news in found if mask and news is not None]

    def meet(self, cta: int, warp: int) -> None:
        """A warp's lanes meet: one of them has waited for the others."""
        for (whose, _, _), group in self._groups.items():
            if whose == cta and group.owing.get(warp, _ALL) != _ALL:
                group.owing.pop(warp)


def _joined(known: Ints | None, news: Ints | None) -> Ints | None:
    return known if news is None else news if known is None else np.maximum(known, news)
