"""Triton on the virtual GPU: runs unmodified `kernel[grid](…)` on CPU tensors with checkers; no GPU needed."""

from .activate import activate, deactivate, on, tunings
from .device import Device
from .errors import KernelFindings
from .tuned import Tuned, TunedConfig
from .tuning import NothingToChoose

__all__ = [
    "Device",
    "KernelFindings",
    "NothingToChoose",
    "Tuned",
    "TunedConfig",
    "activate",
    "deactivate",
    "on",
    "tunings",
]
