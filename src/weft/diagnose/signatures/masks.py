"""Wrong masks: the diagonal is shifted, starts at the other corner, or there is no mask."""

import re
from collections.abc import Iterator

import numpy as np

from weft.attention.reference import Causal, visible
from weft.core.records import Place
from weft.diagnose.records import Case, Signature

from .evidence import Bools, best, may_be, output_of, rank_of
from .lines import loop_over_keys

MASKED = ("masked", "m", "p", "l", "u")
SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 15, -15, 16, -16, 31, -31, 32, -32, 64, -64)


def wrong_mask(case: Case) -> Signature | None:
    """O is right for another mask than the requested one."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, *MASKED):
        return None
    s = out.scores()
    names: dict[str, str] = {}
    candidates = []
    for name, mask, words in _masks(out.mask, out.problem.causal) if out.problem.rows is None else ():
        if np.array_equal(mask, out.mask):
            continue
        # Rows without a visible key are 0 in one kernel and NaN in another: only finite values are compared.
        candidates.append((out.left_over(out.attend(s, mask=mask)), words))
        names.setdefault(words, name)
    found = best(candidates)
    if found is None:
        return None
    message = f"O matches another mask: {found[1]}"
    name = names[found[1]]
    explained = 1 - found[0]
    rank = rank_of(found[0], seen=case.divergence is not None and case.divergence.stage in MASKED)
    if name == "tile_dropped":
        return Signature(name, message, _CURES[name], rank, explained, place=loop_over_keys(case))
    return Signature(name, message, _CURES[name], rank, explained, place=_choice_of_mask(case), stage="masked")


def mask_of_scores(case: Case) -> Signature | None:
    """In a kernel of the FP8 recipe: the observed scores are masked by another mask than the requested one."""
    first, problem = case.divergence, case.recipe
    if first is None or problem is None or first.stage != "masked" or not first.observed.any():
        return None
    seen = first.observed
    masked = np.isneginf(first.actual)
    for name, mask, words in _masks(problem.mask, problem.causal):
        hidden = np.broadcast_to(~mask[:, first.keys.start : first.keys.stop], masked.shape)
        if np.array_equal(masked[seen], hidden[seen]) and name != "tile_dropped":
            message = f"{first.name} is masked by another mask: {words}"
            return Signature(name, message, _CURES[name], 0.97, place=_choice_of_mask(case), stage="masked")
    return None


def _choice_of_mask(case: Case) -> Place | None:
    """Return the last line that tests for the mask: the macro that selects it has a fixed name."""
    macro = "CAUSAL"
    path = case.candidate.path
    if macro not in case.candidate.declared.macros:
        return None
    code = [line.split("//")[0] for line in path.read_text().splitlines()]
    asks = [number for number, line in enumerate(code, 1) if re.search(rf"\b{macro}\b", line) and _is_code(line)]
    return Place(str(path), asks[-1]) if asks else None


def _is_code(line: str) -> bool:
    """Whether it is a statement that compares or computes: no directive, assertion, comment or parameter."""
    return not re.match(r"\s*(?:#|static_assert|template|tl\.static_assert|\w+: tl\.constexpr)", line)


_CURES = {
    "causal_shift": "query i sees keys ≤ i (top left) or ≤ i + SKV - SQ (bottom right): check the comparison",
    "causal_alignment": "use the requested corner: top_left is PyTorch's, bottom_right FlashAttention's",
    "mask_ignored": "set the scores of masked keys to -inf before the maximum is taken",
    "mask_unasked": "apply no mask where none is requested",
    "tile_dropped": "end the loop over KV tiles at ceil(SKV / BLOCK_N)",
}


def _masks(right: Bools, causal: Causal) -> Iterator[tuple[str, Bools, str]]:
    sq, skv = right.shape
    rows, keys = np.arange(sq)[:, None], np.arange(skv)[None, :]
    if causal is None:
        yield "mask_unasked", visible(sq, skv, "top_left"), "causal from the top left, though no mask is requested"
        yield (
            "mask_unasked",
            visible(sq, skv, "bottom_right"),
            "causal from the bottom right, though no mask is requested",
        )
    else:
        other = visible(sq, skv, "top_left" if causal == "bottom_right" else "bottom_right")
        yield "causal_alignment", other, f"the diagonal starts at the other corner, not at {causal}"
        yield "mask_ignored", np.ones_like(right), "every query sees every key"
        start = skv - sq if causal == "bottom_right" else 0
        for shift in SHIFTS:
            sees = f"{abs(shift)} {'key' if abs(shift) == 1 else 'keys'} too {'many' if shift > 0 else 'few'}"
            yield (
                "causal_shift",
                keys <= rows + start + shift,
                f"the diagonal is shifted by {shift:+d}, a query sees {sees}",
            )
    for tile in (16, 32, 64, 128):
        if tile >= skv:
            continue
        whole, last = skv // tile * tile, (skv - 1) // tile * tile
        for end in {whole, last}:
            yield "tile_dropped", right & (keys < end), f"keys {end} to {skv - 1} are left out (tiles of {tile})"
        yield "tile_dropped", right & (keys >= tile), f"keys 0 to {tile - 1} are left out"
    yield "tile_dropped", right & (keys < skv - 1), f"key {skv - 1}, the last, is left out"


def masked_with_zero(case: Case) -> Signature | None:
    """Scores that should be -inf are 0: masked keys, or keys beyond the end, get the weight exp(0 - m)."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, *MASKED):
        return None
    s, skv = out.scores(), out.mask.shape[1]
    zeroed = out.attend(np.where(out.mask, s, 0.0), mask=np.ones_like(out.mask))
    candidates = [(out.left_over(zeroed), "masked scores are 0 instead of -inf")] if not out.mask.all() else []
    for tile in (16, 32, 64, 128):
        more = -skv % tile
        if more:
            padded = [np.concatenate([x, np.zeros((*x.shape[:2], more, x.shape[3]))], axis=2) for x in (out.k, out.v)]
            mask = np.concatenate([out.mask, np.ones((out.mask.shape[0], more), np.bool_)], axis=1)
            o = out.attend(out.scores(k=padded[0]), v=padded[1], mask=mask)
            candidates.append(
                (out.left_over(o), f"{more} keys beyond the end (tiles of {tile}) are included with score 0")
            )
    found = best(candidates)
    if found is None:
        return None
    cure = "set them to -inf before the maximum is taken"
    return Signature("masked_with_zero", found[1], cure, rank_of(found[0]), 1 - found[0])
