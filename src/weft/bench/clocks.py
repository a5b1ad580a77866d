"""The GPU's clock while it is timed, from the driver's management library through cuda-core."""

from typing import Any

from weft.engines.cuda_device import CudaDevice

QUIET = ("none", "gpu_idle")
"""Reasons for a low clock that say nothing about the run."""


class ClockLog:
    """Notes the SM clock and why it is limited. Where the library is missing, it says so instead."""

    def __init__(self, device: CudaDevice) -> None:
        self.mhz: list[int] = []
        self.reasons: list[str] = []
        self.missing = ""
        self._system: Any = None
        try:
            self._system = device.device.to_system_device()
            self._clock = self._system.get_clock("sm")
        except Exception as error:  # cuda-core has a type for each of NVML's reasons
            self.missing = f"clocks were not logged: {' '.join(str(error).split())}"

    def note(self) -> None:
        """One reading."""
        if self.missing:
            return
        self.mhz.append(int(self._clock.get_current_mhz()))
        self.reasons += [str(reason) for reason in self._system.current_clock_event_reasons if reason not in QUIET]
