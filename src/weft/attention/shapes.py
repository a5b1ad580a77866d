"""The table of named shapes: every test, benchmark and document takes its sizes from here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.names import did_you_mean

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
        """The number of query heads that share one key head."""
        return self.hq // self.hkv

    @property
    def products(self) -> int:
        """The number of multiplications of Q·Kᵀ: the work, for comparison with other shapes."""
        return self.b * self.hq * self.sq * self.skv * self.d

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
    """Return a shape with as many keys as queries, and as many key heads as query heads."""
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
    # Odd sizes: a kernel that supports only full tiles gets them wrong.
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
    # Other assumptions about sizes: groups that are no power of two, keys for many iterations of a loop plus one
    # more, a head dimension that no vector load divides.
    Shape("group_3", 3, 9, 3, 34, 51, 64),
    Shape("long_keys", 1, 2, 1, 3, 1089, 64),
    Shape("decode_group", 2, 10, 2, 1, 140, 64),
    Shape("odd_d", 1, 2, 2, 21, 37, 57),
    Shape("d128_ragged", 1, 2, 1, 19, 70, 128),
)

SHAPES: Mapping[str, Shape] = {row.name: row for row in _ROWS}
"""By name. `few_keys` with bottom-right causal alignment has rows without a visible key."""


_SIZED = re.compile(r"b(\d+)-hq(\d+)-hkv(\d+)-sq(\d+)-skv(\d+)-d(\d+)")


def sized(b: int, hq: int, hkv: int, sq: int, skv: int, d: int) -> Shape:
    """Return a shape that is not in the table, named after its sizes: `b1-hq2-hkv1-sq5-skv300-d64`."""
    return Shape(f"b{b}-hq{hq}-hkv{hkv}-sq{sq}-skv{skv}-d{d}", b, hq, hkv, sq, skv, d)


def is_shape(name: str) -> bool:
    """Whether a name is in the table, or consists of valid sizes."""
    try:
        shape(name)
    except ContractError:
        return False
    return True


def shape(name: str) -> Shape:
    """Return a shape by its name in the table, or by its sizes."""
    if name in SHAPES:
        return SHAPES[name]
    if match := _SIZED.fullmatch(name):
        return sized(*(int(size) for size in match.groups()))
    known = f"{', '.join(SHAPES)}, or sizes: b1-hq2-hkv1-sq5-skv300-d64"
    raise ContractError(f"unknown shape {name!r}{did_you_mean(name, SHAPES)}; use one of {known}")
