"""What is judged together: a CTA, or the CTAs of a cluster if the kernel accesses the shared memory of others."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.records import Dim3
from weft.ptx.module import Instruction
from weft.vm.clusters import cluster_of, cluster_with, maps_generic, members, reaches_peers
from weft.vm.runtime.watch import Scene


@dataclass(frozen=True)
class Units:
    """The units of a launch; each is named by its first CTA."""

    grid: Dim3
    cluster: Dim3
    """CTAs of a unit in x, y and z."""

    @classmethod
    def of(cls, scene: Scene) -> "Units":
        source, launch = scene.source, scene.launch
        cluster = cluster_of(source.function.cluster, launch.cluster, launch.grid, source.arch, explicit=False)
        body = (item for item in source.inlined.body if isinstance(item, Instruction))
        generic = maps_generic(source.inlined)
        together = any(ins.facts.uses_memory and reaches_peers(ins, generic=generic) for ins in body)
        return cls(launch.grid, cluster if together else (1, 1, 1))

    @property
    def size(self) -> int:
        """Return how many CTAs a unit has."""
        return math.prod(self.cluster)

    def members(self, cta: int) -> list[int]:
        """Return the CTAs of the unit that has a CTA, the first one first."""
        return members(self.grid, self.cluster, cluster_with(self.grid, self.cluster, cta))

    def first(self, cta: int) -> int:
        """Return the first CTA of the unit that has a CTA."""
        return self.members(cta)[0]

    def joined(self, sites: Mapping[int, set[int]]) -> dict[int, set[int]]:
        """Return the suspicious instructions of units, from those of CTAs."""
        found: dict[int, set[int]] = {}
        for cta, some in sites.items():
            found.setdefault(self.first(cta), set()).update(some)
        return found
