"""What a journal holds. Times are UTC, durations whole seconds, money Decimal; nothing computed is stored."""

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
    """What one hour, or one million tokens, costs from a moment on."""

    kind: Kind
    name: str
    """Which GPU or model; empty is the rate of every one that has none of its own."""
    amount: Decimal
    since: datetime

    @property
    def unit(self) -> str:
        return "M" if self.kind is Kind.TOKENS else "h"


@dataclass(frozen=True)
class Use:
    """Something used, as it was booked by hand."""

    kind: Kind
    name: str
    quantity: int
    """Seconds, or tokens."""
    booked: Decimal | None = None
    """What somebody wrote down for it. The journal computes its own figure and names the difference."""


@dataclass(frozen=True)
class Plan:
    """What was meant to be spent, and where to stop and ask before more is."""

    seconds: int | None = None
    money: Decimal | None = None
    ask_seconds: tuple[int, ...] = ()
    ask_money: tuple[Decimal, ...] = ()

    @property
    def empty(self) -> bool:
        return self.seconds is None and self.money is None


@dataclass(frozen=True)
class GoOn:
    """Somebody was asked at a checkpoint and said yes. `block` None: about the whole journal."""

    block: int | None
    at: datetime
    seconds: int
    money: Decimal
    why: str


@dataclass(frozen=True)
class ShapeResult:
    """How one shape came out."""

    shape: str
    text: str


@dataclass(frozen=True)
class KernelVersion:
    """A kernel that a command named, as its file was then."""

    path: str
    """As it was named: a file or a rung."""
    digest: str
    """SHA-256 of the file."""
    estimate: tuple[float, float] | None = None
    """EST_warm in cycles, both ends, where the command printed it."""


@dataclass(frozen=True)
class CommandRun:
    """The command an entry is about."""

    words: tuple[str, ...]
    exit_code: int
    seconds: float
    summary: str
    """The last line it printed."""
    tail: str = ""
    """The end of what it printed."""
    commit: str = ""
    """Of the repository of its kernels, with `+` if files differ from it; empty where there is none."""
    kernels: tuple[KernelVersion, ...] = ()
    """Kernels that it named."""


@dataclass(frozen=True)
class Texts:
    """What a person writes about an iteration; empty where nothing was written."""

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
    """When it was over."""
    kind: str
    """The verb of weft, `command` or `note`."""
    texts: Texts
    block: int | None = None
    shapes: tuple[ShapeResult, ...] = ()
    run: CommandRun | None = None
    spent: int | None = None
    """Seconds of a person's time, where they were given."""
    uses: tuple[Use, ...] = ()
    amended: datetime | None = None


@dataclass(frozen=True)
class Block:
    """A stretch of work with a plan. `clocked` False: written down afterwards, its times mean nothing."""

    number: int
    title: str
    started: datetime
    stopped: datetime | None
    plan: Plan = field(default_factory=Plan)
    clocked: bool = True
    engineer: int | None = None
    """Seconds, where somebody said so; otherwise the clock counts."""
    uses: tuple[Use, ...] = ()
    booked_sum: Decimal | None = None


@dataclass(frozen=True)
class MachineRun:
    """A GPU machine from its start to its stop."""

    name: str
    gpu: str
    """Whose rate it has, where it has none of its own."""
    rate: Decimal | None
    started: datetime
    stopped: datetime | None


@dataclass(frozen=True)
class Book:
    """Everything, as read from the store."""

    currency: str = "$"
    rates: tuple[Rate, ...] = ()
    blocks: tuple[Block, ...] = ()
    entries: tuple[Entry, ...] = ()
    machines: tuple[MachineRun, ...] = ()
    go_ons: tuple[GoOn, ...] = ()
    budget: Plan = field(default_factory=Plan)
    """Of the whole journal."""

    @property
    def open_block(self) -> Block | None:
        return next((block for block in self.blocks if block.stopped is None), None)

    @property
    def running(self) -> tuple[MachineRun, ...]:
        return tuple(machine for machine in self.machines if machine.stopped is None)
