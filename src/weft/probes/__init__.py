"""Probes: instrumentation that watches a run on the virtual GPU.

gpu.launch(..., watch=Probes(InitCheck(), RaceCheck()))
"""

from .combine import Probes
from .initcheck import InitCheck
from .racecheck import RaceCheck
from .wavefronts import Wavefronts

__all__ = ["InitCheck", "Probes", "RaceCheck", "Wavefronts"]
