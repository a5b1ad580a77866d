"""All passes of a kernel, in order: each is a file of this package, and runs when its result is first needed.

Five run elsewhere. `resolve_calls`, `discard_unread` and `relax_guesses` work on a module: `ptx/parse.py` runs them
once per file.
`group_mma` depends on how the emitter of warps in step splits the kernel: `vm/emit/in_step.py` runs it.
`find_recognition` depends on the contents of a call's inputs: `judge/recognise.py` runs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..module import CARRY, Function, Module
from .build_cfg import Cfg, build_cfg
from .find_hidden_nans import find_hidden_nans
from .find_hidden_ways import find_hidden_ways
from .find_in_flight import InFlight, find_in_flight
from .find_liveness import Liveness, find_liveness
from .find_quiet_nans import find_quiet_nans
from .find_regions import MaskedRegion, find_regions
from .find_repeats import find_repeats
from .find_uniform import Uniformity, find_uniform
from .find_waits import waits_for_others
from .fold_constants import fold_constants
from .give_way import give_way
from .inline_calls import inline_calls


@dataclass(frozen=True)
class KernelPasses:
    """A kernel of a module and the results of the passes. `warps_are_rows`: a warp is 32 consecutive tid.x."""

    module: Module
    kernel: Function
    warps_are_rows: bool

    @cached_property
    def inlined(self) -> Function:
        """Return the kernel with the functions it calls inlined."""
        return inline_calls(self.module, self.kernel)

    @cached_property
    def folded(self) -> Function:
        """Return it with registers replaced by the constants they hold; the carry is an ordinary predicate register."""
        folded = give_way(fold_constants(self.inlined))
        return replace(folded, registers={**folded.registers, CARRY.name: "pred"})

    @cached_property
    def cfg(self) -> Cfg:
        return build_cfg(self.folded)

    @cached_property
    def liveness(self) -> Liveness:
        return find_liveness(self.cfg)

    @cached_property
    def uniformity(self) -> Uniformity:
        return find_uniform(self.cfg, warps_are_rows=self.warps_are_rows)

    @cached_property
    def regions(self) -> Mapping[int, MaskedRegion]:
        return find_regions(self.cfg, self.uniformity)

    @cached_property
    def hidden_ways(self) -> frozenset[tuple[int, int]]:
        return find_hidden_ways(self.cfg)

    @cached_property
    def hidden_nans(self) -> frozenset[str]:
        return find_hidden_nans(self.cfg)

    @cached_property
    def quiet_nans(self) -> frozenset[str]:
        return find_quiet_nans(self.cfg, self.liveness.at(0))

    @cached_property
    def repeats(self) -> frozenset[int]:
        """Return the lines of tests of mbarriers that are repeated without any change as long as they fail."""
        return find_repeats(self.cfg)

    @cached_property
    def in_flight(self) -> tuple[InFlight, ...]:
        """Return registers that are touched while a product may use them; a debug build touches all of them."""
        return () if self.module.debug else find_in_flight(self.cfg)

    @cached_property
    def waits(self) -> bool:
        """Return whether a CTA may wait for another."""
        return waits_for_others(self.cfg)
