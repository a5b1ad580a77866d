"""What the name of a load or store says: `ld.global.b32.v4` (`access.py`)."""

from dataclasses import dataclass

ADDRESS = {"global": "i64", "generic": "i64", "shared": "i32", "local": "i32"}


@dataclass(frozen=True)
class Shape:
    """The data that an access function moves."""

    name: str
    store: bool
    space: str
    bits: int
    vector: int
    read: int
    """How many of the members are read, or written."""
    last_word: bool

    @property
    def bytes(self) -> int:
        """Return the bytes per lane."""
        return self.bits * self.vector // 8

    @property
    def read_bytes(self) -> int:
        """Return those that must be in an object."""
        return self.bits * self.read // 8

    @property
    def address(self) -> str:
        return ADDRESS[self.space]


def parse_name(name: str) -> Shape:
    """Return the Shape of `ld.global.b32.v4`, or of its part `ld.global.b32.v4.scattered`."""
    op, space, width, members, *_ = name.split(".")
    count, _, read = members[1:].partition("r")
    return Shape(name, op == "st", space, int(width[1:]), int(count), int(read or count), width[0] == "w")
