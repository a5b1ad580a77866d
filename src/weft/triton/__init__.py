"""Triton on the virtual GPU: unmodified `kernel[grid](…)` with CPU tensors, checked, no GPU needed."""

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
