"""The one table of named shapes: every test, benchmark and document takes its sizes from here."""

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ContractError


@dataclass(frozen=True)
class Shape:
    """Sizes of one attention call: q is (b, hq, sq, d), k and v are (b, hkv, skv, d)."""

    name: str
    b: int
    hq: int
    hkv: int
    sq: int
    skv: int
    d: int

    def __post_init__(self) -> None:
        sizes = (self.b, self.hq, self.hkv, self.sq, self.skv, self.d)
        if min(sizes) < 1:
            raise ContractError(f"shape {self.name}: every size is at least 1, not {sizes}")
        if self.hq % self.hkv:
            raise ContractError(f"shape {self.name}: {self.hq} query heads are no multiple of {self.hkv} key heads")

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.hq // self.hkv

    @property
    def q(self) -> tuple[int, int, int, int]:
        """The shape of q and o."""
        return (self.b, self.hq, self.sq, self.d)

    @property
    def kv(self) -> tuple[int, int, int, int]:
        """The shape of k and v."""
        return (self.b, self.hkv, self.skv, self.d)

    @property
    def lse(self) -> tuple[int, int, int]:
        """The shape of the log-sum-exp."""
        return (self.b, self.hq, self.sq)


def square(name: str, b: int, h: int, s: int, d: int) -> Shape:
    """As many keys as queries, and as many key heads as query heads."""
    return Shape(name, b, h, h, s, s, d)


_ROWS = (
    square("mission", 1, 8, 512, 64),
    square("small", 1, 1, 32, 64),
    square("long", 1, 8, 2048, 64),
    square("validation_128", 1, 4, 128, 64),
    square("validation_512", 1, 8, 512, 64),
    square("validation_2048", 2, 8, 2048, 64),
    square("validation_2048_d128", 2, 8, 2048, 128),
    square("split_4", 1, 1, 4, 4),
    *(square(f"split_{s}", 1, 1, s, 64) for s in (64, 65, 128, 192, 256, 512)),
    # Odd ones: what a kernel that only knows whole tiles gets wrong.
    square("one_token", 1, 2, 1, 64),
    square("ragged", 2, 2, 77, 64),
    square("d32", 1, 2, 96, 32),
    square("d48", 1, 2, 144, 48),
    square("d80", 1, 2, 72, 80),
    square("d96", 1, 2, 72, 96),
    square("d128", 1, 2, 80, 128),
    Shape("gqa_4", 1, 8, 2, 64, 64, 64),
    Shape("gqa_8", 1, 8, 1, 40, 40, 64),
    Shape("gqa_4_ragged", 2, 4, 1, 33, 70, 64),
    Shape("decode", 2, 4, 4, 1, 130, 64),
    Shape("decode_gqa", 2, 8, 2, 1, 600, 128),
    Shape("decode_draft", 2, 8, 2, 5, 333, 64),
    Shape("few_queries", 1, 2, 2, 20, 100, 64),
    Shape("few_keys", 1, 2, 2, 100, 20, 64),
)

SHAPES: Mapping[str, Shape] = {row.name: row for row in _ROWS}
"""By name. `few_keys` with bottom-right causal alignment has rows that see no key at all."""


def shape(name: str) -> Shape:
    """A named shape."""
    if name not in SHAPES:
        raise ContractError(f"unknown shape {name!r}; use one of {', '.join(SHAPES)}")
    return SHAPES[name]
