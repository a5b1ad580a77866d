"""@triton.autotune without a GPU: configurations with findings or spills are refused, the others ranked by EST."""

import inspect
import logging
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from typing import Any

from triton import knobs
from triton.runtime.autotuner import Autotuner

from weft.core import knobs as settings
from weft.core.errors import ToolMissing, WeftError
from weft.core.records import Binary
from weft.probes.tools import watch_for
from weft.toolchain.ptxas_log import parse_resources

from .device import Device
from .errors import KernelFindings
from .estimates import Estimated, Estimator, answer, say_once, total_ms
from .stand_ins import patched
from .tuned import Tuned, TunedConfig

NOT_TRIED = "not tried: WEFT_AUTOTUNE accepted enough others"
_LOG = logging.getLogger("weft.triton")


class NothingToChoose(WeftError):
    """Every configuration has findings."""


class Tuner:
    """The benchmarker that Triton's autotuner calls, and the record of its choices."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._estimator = Estimator(device)
        self._rows: list[tuple[TunedConfig, bool]] = []
        self._spills: dict[str, int] = {}
        self._autotuner: Any = None

    def __call__(self, kernel_call: Callable[[], object], quantiles: Sequence[float], **_: Any) -> float | list[float]:
        """Run with all checkers, then with counters; return inf for a refused configuration.

        If only one is to be accepted, it is the first without findings, and nothing is counted.
        """
        say_once(self.device)
        inside = inspect.getclosurevars(kernel_call).nonlocals  # variables of the autotuner, which passes none
        config, self._autotuner = str(inside.get("config", f"number {len(self._rows)}")), inside.get("self")
        if settings.autotuned() and sum(not row.refused for row, _ in self._rows) >= settings.autotuned():
            self._rows.append((TunedConfig(config, inf, NOT_TRIED), False))
            return answer(inf, quantiles)
        try:
            with self.device.running(self.device.gpu.run, watch_for(["all"])):
                kernel_call()
            if settings.autotuned() == 1:  # no other is run, so there is nothing to compare with
                self._rows.append((TunedConfig(config, inf, ""), False))
                return answer(0.0, quantiles)
            made = self._estimator.run(kernel_call)
        except KernelFindings as error:
            self._rows.append((TunedConfig(config, inf, str(error.findings[0])), True))
            return answer(inf, quantiles)
        except Exception as error:  # Triton's autotuner decides which of its errors to skip
            self._rows.append((TunedConfig(config, inf, f"{type(error).__name__}: {error}"), False))
            raise
        spilled = self._spilled(made)
        self._rows.append((TunedConfig(config, total_ms(made), spilled), False))
        return answer(inf if spilled else total_ms(made), quantiles)

    def finish(self, fn: Any, key: Any, best_config: Any) -> None:
        """Record the choice of Triton's autotuner."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        if all(found for _, found in rows):
            if self._autotuner is not None:  # else the next call would silently use the first of them
                self._autotuner.cache.pop(key, None)
            raise NothingToChoose(f"{fn.__name__}: every configuration has findings: {rows[0][0].refused}")
        chip = self.device.chip
        tuned = Tuned(fn.__name__, chip.title, chip.boost_ghz, tuple(row for row, _ in rows), str(best_config))
        self.device.tuned.append(tuned)
        refused = sum(bool(row.refused) for row, _ in rows)
        _LOG.warning(
            "autotune of %s: %d configurations, %d refused, the rest ranked by EST on %s at %s GHz (nothing was "
            "timed); chosen %s",
            tuned.kernel,
            len(rows),
            refused,
            tuned.chip,
            tuned.clock_ghz,
            tuned.chosen,
        )

    def _spilled(self, made: Sequence[Estimated]) -> str:
        worst = max((self._spill_bytes(each.binary, each.entry) for each in made), default=0)
        return f"spills {worst} bytes per thread" if worst else ""

    def _spill_bytes(self, binary: Binary, entry: str) -> int:
        """Return spilled bytes. The cubin records only local memory; ptxas reports how much of it are spills."""
        if not binary.resources[entry].local_bytes:
            return 0
        if binary.ptx_digest not in self._spills:
            self._spills[binary.ptx_digest] = _ask_ptxas(binary, entry)
        return self._spills[binary.ptx_digest]


def listening(tuner: Tuner) -> AbstractContextManager[None]:
    """Inside, the tuner learns what Triton's autotuners choose."""
    original = Autotuner.run

    def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch as before. A key that is new in the cache has been tuned, also if the launch failed."""
        before = set(autotuner.cache)
        try:
            return original(autotuner, *args, **kwargs)
        finally:
            for key in set(autotuner.cache) - before:
                tuner.finish(autotuner.base_fn, key, autotuner.cache[key])

    return patched(Autotuner, {"run": run})


def _ask_ptxas(binary: Binary, entry: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(binary.ptx)
        target = [f"--gpu-name={binary.arch}", "--regAllocOptLevel=2", "-lineinfo", "-v"]
        command = [knobs.nvidia.ptxas.path, *target, str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    resources = parse_resources(done.stderr + done.stdout).get(entry)
    if resources is None:
        raise ToolMissing(f"ptxas of the triton package does not report the spills of {entry}: {done.stderr[:200]}")
    return resources.spill_store_bytes
