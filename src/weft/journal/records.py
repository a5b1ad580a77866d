"""The records of a journal. Times are UTC, durations whole seconds, money Decimal; computed values are not stored."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum


class Kind(StrEnum):
    """What costs money."""

    ENGINEER = "engineer"
    GPU = "gpu"
    TOKENS = "tokens"


@dataclass(frozen=True)
class Rate:
    """The price of an hour, or of a million tokens, from a moment on."""

    kind: Kind
    name: str
    """The GPU or model; empty: the rate of all that have no rate by name."""
    amount: Decimal
    since: datetime

    @property
    def unit(self) -> str:
        return "M" if self.kind is Kind.TOKENS else "h"


@dataclass(frozen=True)
class Use:
    """A quantity used, as it was booked by hand."""

    kind: Kind
    name: str
    quantity: int
    """Seconds, or tokens."""
    booked: Decimal | None = None
    """The amount in the user's log. The journal computes the amount itself and reports the difference."""


@dataclass(frozen=True)
class Plan:
    """The planned time and money, and the checkpoints at which to stop and ask."""

    seconds: int | None = None
    money: Decimal | None = None
    ask_seconds: tuple[int, ...] = ()
    ask_money: tuple[Decimal, ...] = ()

    @property
    def empty(self) -> bool:
        return self.seconds is None and self.money is None


@dataclass(frozen=True)
class GoOn:
    """The user answered a checkpoint and continued. `block` None: a checkpoint of the whole journal."""

    block: int | None
    at: datetime
    seconds: int
    money: Decimal
    why: str


@dataclass(frozen=True)
class ShapeResult:
    """The result of one shape."""

    shape: str
    text: str


@dataclass(frozen=True)
class KernelVersion:
    """A kernel that a command named, with the state of its file at that time."""

    path: str
    """A file or a rung, as the command named it."""
    digest: str
    """SHA-256 of the file."""
    estimate: tuple[float, float] | None = None
    """EST_warm in cycles, both ends, if the command printed it."""


@dataclass(frozen=True)
class CommandRun:
    """The command of an entry."""

    words: tuple[str, ...]
    exit_code: int
    seconds: float
    summary: str
    """The last line it printed."""
    tail: str = ""
    """The end of what it printed."""
    commit: str = ""
    """Commit of the repository of its kernels, with `+` if files differ from it; empty if there is none."""
    kernels: tuple[KernelVersion, ...] = ()
    """Kernels that the command named."""


@dataclass(frozen=True)
class Texts:
    """A person's notes about an iteration; empty if there are none."""

    goal: str = ""
    hypothesis: str = ""
    change: str = ""
    result: str = ""
    finding: str = ""
    decision: str = ""


@dataclass(frozen=True)
class Entry:
    """One iteration."""

    number: int
    at: datetime
    """When it ended."""
    kind: str
    """The verb of weft, `command` or `note`."""
    texts: Texts
    block: int | None = None
    shapes: tuple[ShapeResult, ...] = ()
    run: CommandRun | None = None
    spent: int | None = None
    """Seconds of a person's time, if given."""
    uses: tuple[Use, ...] = ()
    amended: datetime | None = None


@dataclass(frozen=True)
class Block:
    """A working block with a plan. `clocked` False: it was recorded afterwards, and its times have no meaning."""

    number: int
    title: str
    started: datetime
    stopped: datetime | None
    plan: Plan = field(default_factory=Plan)
    clocked: bool = True
    engineer: int | None = None
    """Seconds, if given by the user; otherwise the clock counts."""
    uses: tuple[Use, ...] = ()
    booked_sum: Decimal | None = None


@dataclass(frozen=True)
class MachineRun:
    """A GPU machine from its start to its stop."""

    name: str
    gpu: str
    """The GPU whose rate applies if the machine has no rate."""
    rate: Decimal | None
    started: datetime
    stopped: datetime | None


@dataclass(frozen=True)
class Book:
    """The complete journal, as read from the store."""

    currency: str = "$"
    rates: tuple[Rate, ...] = ()
    blocks: tuple[Block, ...] = ()
    entries: tuple[Entry, ...] = ()
    machines: tuple[MachineRun, ...] = ()
    go_ons: tuple[GoOn, ...] = ()
    budget: Plan = field(default_factory=Plan)
    """The budget of the whole journal."""

    @property
    def open_block(self) -> Block | None:
        return next((block for block in self.blocks if block.stopped is None), None)

    @property
    def running(self) -> tuple[MachineRun, ...]:
        return tuple(machine for machine in self.machines if machine.stopped is None)
