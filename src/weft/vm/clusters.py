"""Clusters: groups of CTAs that run together, and addresses of their shared memory.

An address in the shared memory of another CTA (`mapa`) has the rank of that CTA, plus one, above the offset:

    31        24 23                                    0
    rank + 1     shared address in that CTA                    0: the own CTA
On hardware the own CTA's addresses have its rank there as well. Here they have none, so that they are the same in all
CTAs, and `mapa` to the own rank returns the address unchanged.
"""

from math import prod

from weft.core.errors import LaunchError
from weft.core.records import Dim3
from weft.ptx.isa.facts import is_later
from weft.ptx.module import Function, Instruction

RANK_SHIFT = 24
LARGEST = 16
"""CTAs of a cluster: 8 on every GPU that has clusters, 16 where a kernel asks for it."""


def cluster_of(required: Dim3, asked: Dim3, grid: Dim3, arch: str, *, explicit: bool) -> Dim3:
    """Return the CTAs per cluster of a launch in x, y and z.

    `required` is what the kernel says, `asked` what the launch says (zeros: nothing); `explicit`: one of them must.
    """
    if any(required) and any(asked) and required != asked:
        raise LaunchError(f"the kernel requires clusters of {required} CTAs, and the launch asks for {asked}")
    cluster = required if any(required) else asked
    if not any(cluster):
        if explicit:
            raise LaunchError("the kernel must be launched with a cluster: write cluster(2) on its launch line")
        return 1, 1, 1
    if any(size < 1 for size in cluster) or prod(cluster) > LARGEST:
        raise LaunchError(f"a cluster of {cluster} CTAs: it has 1 to {LARGEST}")
    if prod(cluster) > 1 and is_later("sm_90", arch):
        raise LaunchError(f"clusters need sm_90, and this GPU is {arch}")
    if any(size % part for size, part in zip(grid, cluster, strict=True)):
        raise LaunchError(f"the grid {grid} cannot be divided into clusters of {cluster} CTAs")
    return cluster


def members(grid: Dim3, cluster: Dim3, number: int) -> list[int]:
    """Return the numbers of the CTAs of a cluster, by rank; clusters are counted like CTAs, x first."""
    counts = [size // part for size, part in zip(grid, cluster, strict=True)]
    first = [
        place * part
        for place, part in zip(
            (number % counts[0], number // counts[0] % counts[1], number // (counts[0] * counts[1])),
            cluster,
            strict=True,
        )
    ]
    return [
        first[0] + x + grid[0] * (first[1] + y + grid[1] * (first[2] + z))
        for z in range(cluster[2])
        for y in range(cluster[1])
        for x in range(cluster[0])
    ]


def cluster_with(grid: Dim3, cluster: Dim3, cta: int) -> int:
    """Return the number of the cluster that has a CTA."""
    place = cta % grid[0], cta // grid[0] % grid[1], cta // (grid[0] * grid[1])
    x, y, z = (at // part for at, part in zip(place, cluster, strict=True))
    return x + grid[0] // cluster[0] * (y + grid[1] // cluster[1] * z)


def maps_generic(function: Function) -> bool:
    """Return whether a kernel makes generic addresses of other CTAs; otherwise no generic access can reach them."""
    return any(isinstance(item, Instruction) and item.facts.maps and not item.has("space") for item in function.body)


def reaches_peers(ins: Instruction, *, generic: bool) -> bool:
    """Return whether an access may be in the shared memory of another CTA; `generic`: if its address is generic."""
    return ins.mods.get("space") == "shared::cluster" or (generic and ins.space == "generic")
