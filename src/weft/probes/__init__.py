"""What watches a run: each probe hands the virtual GPU its instrumentation.

gpu.launch(..., watch=Probes(InitCheck(), RaceCheck()))
"""

from .combine import Probes
from .initcheck import InitCheck
from .racecheck import RaceCheck
from .wavefronts import Wavefronts

__all__ = ["InitCheck", "Probes", "RaceCheck", "Wavefronts"]
