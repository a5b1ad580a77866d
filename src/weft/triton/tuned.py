"""What an autotuner chose without a GPU, and what it refused."""

from dataclasses import dataclass
from math import isinf


@dataclass(frozen=True)
class TunedConfig:
    """One configuration: its estimate, or why it was refused."""

    config: str
    est_ms: float
    """inf where there is no estimate."""
    refused: str
    """Why it was refused; empty: it was not."""


@dataclass(frozen=True)
class Tuned:
    """What an autotuner chose for one key."""

    kernel: str
    chip: str
    clock_ghz: float
    configs: tuple[TunedConfig, ...]
    chosen: str

    def __str__(self) -> str:
        """Return a table, best first, refused configurations last."""
        width = max(len(_short(each.config)) for each in self.configs)
        lines = [f"{self.kernel} on {self.chip} at {self.clock_ghz} GHz: EST, nothing was timed"]
        for each in sorted(self.configs, key=lambda row: (bool(row.refused), row.est_ms)):
            mark = "*" if each.config == self.chosen else " "
            figure = f"{each.est_ms * 1e3:10.2f} us" if not isinf(each.est_ms) else " " * 13
            lines.append(
                f"{mark} {_short(each.config):{width}} {figure} {'refused: ' + each.refused if each.refused else ''}"
            )
        return "\n".join(line.rstrip() for line in lines)


def _short(config: str) -> str:
    """Return the text without the settings that Triton prints although they were not set."""
    unset = ("num_ctas: 1", "maxnreg: None", "ir_override: None")
    return ", ".join(part for part in config.split(", ") if part not in unset)
