"""What Nsight Compute measured for one launch, from its report."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.records import Dim3


@dataclass(frozen=True)
class Measured:
    """A metric's value in base units: bytes, nanoseconds, hertz, counts."""

    value: float
    within: float = 0.0
    """Half a unit of the last printed digit: the precision of a scaled or rounded value."""
    unit: str = ""

    def agrees(self, other: float) -> bool:
        """Whether `other`, printed with the same precision, would be the same text."""
        return abs(self.value - other) <= self.within + 1e-9 * abs(self.value)


@dataclass(frozen=True)
class NcuLaunch:
    """One row of a report. Missing values are None."""

    number: str
    """ncu's ID."""
    kernel: str
    """As ncu prints it: demangled, with its parameters or without."""
    grid: Dim3 | None
    block: Dim3 | None
    capability: str | None
    metrics: Mapping[str, Measured]
