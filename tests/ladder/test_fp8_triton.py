"""`fp8_triton`: the codes of the quantisers, the result of the recipe, and flushed sums that are not merged."""

import re

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.ladder.test_fp8_mma import Case, inputs
from weft.attention.dtypes import Array
from weft.attention.e4m3 import E4M3PerChannel, SmoothedE4M3PerBlock
from weft.attention.error_report import compare
from weft.attention.fp8_recipe import RecipeRun
from weft.attention.gates import lse_gate, tight_gate
from weft.attention.reference import attention, visible
from weft.attention.shapes import Shape
from weft.core.errors import CompileError
from weft.engines.bind import bind_numbers
from weft.engines.triton_file import compile_launch
from weft.kernels import RUNGS
from weft.probes import InitCheck, Probes, RaceCheck
from weft.tasks.recipe_problem import recipe_of
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

PATH = RUNGS["fp8_triton"].path
ODD = Shape("odd", 1, 4, 2, 70, 133, 21)  # no whole vectors, steps or tiles; two chunks, three tiles
TALL = Shape("tall", 1, 2, 1, 90, 70, 24)  # bottom_right: the first 20 queries see no key
CASES = (
    Case(ODD, "top_left"),
    Case(TALL, "bottom_right", "bf16", {"SMOOTH": "0"}),
    # Two columns of Q per lane: here fused products made two lanes write different sums to the same place.
    Case(Shape("few", 1, 1, 1, 33, 133, 37), None, "f32", {"BLOCK_M": "32", "BLOCK_N": "128"}),
)


def run(arrays: dict[str, Array], defines: dict[str, str], watch: Instrumentation = PLAIN) -> dict[str, Array]:
    """Return all arrays after a run without findings."""
    kernel = weft.load(PATH, defines=defines)
    outcome, after = kernel.run(weft.VirtualGPU(), arrays, watch=watch)
    assert outcome.findings == (), "\n".join(map(str, outcome.findings))
    return after


@pytest.mark.parametrize("case", one_in(4, CASES), ids=str)
def test_it_follows_its_recipe(case: Case) -> None:
    arrays, shape = inputs(case.shape, case.dtype), case.shape
    after = run(arrays, case.defines, Probes(InitCheck(), RaceCheck()))
    mask = visible(shape.sq, shape.skv, case.causal)
    followed = RecipeRun(recipe_of(case.levers, case.dtype), **arrays, mask=mask).follow()
    gate = tight_gate(after["o"], followed.o, arrays["v"], case.dtype, allowance=followed.allowance)
    assert gate.passed, gate
    lse = lse_gate(after["lse"], followed.lse)
    assert lse.passed, lse
    exact = attention(**arrays, causal=case.causal)
    unseen = np.isneginf(exact.lse)
    assert unseen.any() == (case.shape is TALL)
    assert np.array_equal(np.isneginf(after["lse"]), unseen) and not after["o"][unseen].any()
    # Loose, but independent of the recipe: three fraction bits are off by 2^-4 at most, 0.036 in the RMS.
    assert compare(after["o"], exact.o).rel_l2 < 0.1
    if case.levers.get("SMOOTH") != "0":
        check_codes(arrays, after, shape, recipe_of(case.levers, case.dtype).block_n)


def check_codes(arrays: dict[str, Array], after: dict[str, Array], shape: Shape, block_n: int) -> None:
    """Check that steps, means and codes are the quantisers' bit for bit, and zero beyond the end."""
    keys, channels = SmoothedE4M3PerBlock(block_n).encode(arrays["k"]), E4M3PerChannel().encode(arrays["v"])
    for name, expected in (("k_mean", keys.mean), ("k_step", keys.scale), ("v_step", channels.scale)):
        assert np.array_equal(after[name], expected), name
    for name, codes in (("k_code", keys.codes), ("v_code", channels.codes)):
        found = after[name].view(np.uint8)
        padded = np.zeros_like(found if name == "k_code" else found.swapaxes(2, 3))
        padded[:, :, : shape.skv, : shape.d] = codes
        assert np.array_equal(found, padded if name == "k_code" else padded.swapaxes(2, 3)), name


@pytest.mark.parametrize("flush", [64, 0])
def test_only_flushing_keeps_small_values_of_many_keys(flush: int) -> None:
    """With q = 0 every P is 1, so U sums 256 · code. 64 keys of code 448 come to 2^22.8: from there on 13 fraction bits
    end at 2^9, and a key of code 2^-6, which adds 4, is lost, unless 64 of them are summed apart, to 256."""
    shape, large, small = Shape("steps", 1, 1, 1, 3, 512, 32), 64, 448
    arrays = {"q": np.zeros(shape.q, np.float32), "k": np.zeros(shape.kv, np.float32)}
    arrays["v"] = np.full(shape.kv, 2.0**-6, np.float32)
    arrays["v"][:, :, :large] = 448
    after = run(arrays, {"ELEMENT": "float", "FLUSH": str(flush)})
    kept = flush != 0
    np.testing.assert_allclose(after["o"], (large * 448 + kept * small * 2.0**-6) / shape.skv, rtol=1e-6)
    np.testing.assert_allclose(after["lse"], np.log(shape.skv), rtol=1e-6)


def chains(ptx: str) -> list[int]:
    """Return how many mma in a row each sum of the text takes, 99 for one that does not begin at zero."""
    zeros: set[str] = set()
    sums: dict[str, int] = {}
    for line in ptx.splitlines():
        if "mma.sync" in line:
            accumulators = re.findall(r"\{([^}]*)\}", line)[3].replace(" ", "").split(",")
            first = accumulators[0]
            length = 1 if set(accumulators) <= zeros else sums.get(first, 98) + 1
            zeros -= set(accumulators)
            sums[first] = length
        elif match := re.match(r"\s*mov\.b32\s+(%\w+), (%?\w+);", line):
            to, value = match.groups()
            sums.pop(to, None)
            (zeros.add if value == "0" or value in zeros else zeros.discard)(to)
        elif match := re.match(r"\s*[a-z@][\w.%! ]*\s(%r\d+),", line):
            zeros.discard(match[1])
            sums.pop(match[1], None)
    return list(sums.values())


@pytest.mark.parametrize(("levers", "longest"), [({}, 2), ({"BLOCK_N": "128"}, 2), ({"FLUSH": "0"}, 99)])
def test_the_compiler_does_not_merge_flushed_sums(levers: dict[str, str], longest: int) -> None:
    """At most two mma of 32 keys start from zero; without FLUSH U itself is the accumulator, as Triton prefers."""
    kernel = weft.load(PATH, defines=levers)
    bound = bind_numbers(kernel.lines, str(PATH), sizes={"D": 32}, defines=levers)
    binary = compile_launch(str(PATH), "sm_89", "fp8_triton<num_warps=4>", kernel.launches[2], kernel.lines, bound)
    found = chains(binary.ptx)
    assert found and min(99, max(found)) == longest
    (resources,) = binary.resources.values()
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0


@pytest.mark.parametrize(
    ("defines", "sizes", "message"),
    [
        ({"BLOCK_N": "256"}, {}, "BLOCK_N is 64 or 128"),
        ({"FLUSH": "32"}, {}, "FLUSH is 64"),
        ({"CAUSAL": "3"}, {}, "CAUSAL is 0"),
        ({}, {"D": 129}, "D is 1 to 128"),
    ],
)
def test_what_is_not_supported_does_not_compile(defines: dict[str, str], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.load(PATH, defines=defines).compile(sizes=sizes)
