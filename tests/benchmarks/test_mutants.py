"""Three mutants of one rung in the complete benchmark, and its report on rows made by hand."""

from pathlib import Path

from benchmarks import mutants
from benchmarks.mutant_report import draw, report
from weft.judge.select import find_candidate
from weft.mutate.equivalent import Original
from weft.mutate.ladder_sample import Labelled, all_of


def mutant(before: str, after: str) -> Labelled:
    found = all_of("scalar", mutants.LABELS)
    return next(each for each in found if each.mutant.before.strip() == before and each.mutant.after.strip() == after)


WRONG = mutant("l = l * rescale + p;", "l = l * rescale - p;")


def test_a_mutant_is_done_once(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    mutants.run([WRONG], rows, ("kernelbench_like",))
    (alone,) = mutants.read_rows(rows)
    mutants.run([WRONG], rows, ("kernelbench_like", "loose"))
    (first,) = mutants.read_rows(rows)
    assert alone == {**first, "policies": {"kernelbench_like": True}}  # missing policies are added, nothing is repeated
    assert (first["outcome"], first["stage"], first["stage_right"], first["line_right"]) == ("killed", "l", True, True)
    assert first["policies"] == {
        "kernelbench_like": True,
        "loose": True,
    }  # all find a sum with the wrong sign
    assert first["seconds"] > 0 and first["judged"] == 1
    mutants.run([WRONG], rows, ("loose",))
    assert len(rows.read_text().splitlines()) == 2


def test_a_policy_without_masks_passes_a_wrong_mask(tmp_path: Path) -> None:
    unseen = mutant("return max(0, min(SKV, diagonal + 1));", "return max(0, min(SKV, diagonal + 2));")
    original = Original(*find_candidate("scalar", task=None))
    row = mutants.try_one(original, unseen, tmp_path, ("kernelbench_like",))
    assert row["outcome"] == "killed" and row["stage_right"] and not row["policies"]["kernelbench_like"]


def test_parts_of_the_sample_are_disjoint_and_cover_it() -> None:
    sample = all_of("scalar", mutants.LABELS)
    thirds = [each.mutant.id for each in mutants.stratified(sample, ["scalar"], 3)]
    assert len(thirds) == -(-len(sample) // 3) == len(set(thirds))
    assert {each.mutant.id for each in mutants.stratified(sample, ["scalar"], 1)} == {each.mutant.id for each in sample}


def row(name: str, outcome: str, **more: object) -> dict[str, object]:
    rights = {"stage_right": True, "line_right": False, "line_among_three": True, "named": True}
    told = {**rights, "seconds": 2.0, "policies": {"loose": False}}
    plain = {"rung": "scalar", "class": "mask", "held_out": False, "line": 1, "before": "a", "after": "b"}
    return {"id": name, "outcome": outcome, **plain, **told, **more}


def test_the_report_counts() -> None:
    rows = [
        row("a", "killed"),
        row("b", "killed", held_out=True, stage_right=False, line_right=True, seconds=4.0, policies={"loose": True}),
        row("c", "survived", stage_right=False, named=False),
        row("d", "same PTX"),
        row("e", "refused"),
        {"id": "scalar", "outcome": "original", "rung": "scalar", "alarm": False, "judged": 90, "policies": {}},
    ]
    found = report(rows)
    assert (found["total"], found["false_alarms"], found["correct_runs"], found["refused"]) == (3, 0, 90, 1)
    assert (found["killed_rate"], found["stage_rate"], found["line_rate"]) == (0.6667, 0.3333, 0.3333)
    assert found["line_top3_rate"] == 0.6667  # a survivor has no line at all
    assert (found["heldout_total"], found["heldout_killed_rate"], found["heldout_stage_rate"]) == (1, 1.0, 0.0)
    assert (found["seconds_per_mutant"], found["seconds_per_mutant_median"]) == (2.67, 2.0)
    assert found["equivalent_share"] == 0.25
    assert len(found["survivors"]) == 1 and found["survivors"][0].startswith("c · line 1")
    assert found["policies"]["loose"] == {"total": 3, "killed_rate": 0.3333, "rejects_right_kernels": []}
    rows[-1]["policies"] = {"loose": True}
    assert report(rows)["policies"]["loose"] == {"total": 0, "killed_rate": None, "rejects_right_kernels": ["scalar"]}


def test_the_report_compares_with_and_without_repairs() -> None:
    fixed = {"line_right": True, "seconds": 30.0, "repairs": [[1, "b → a"]], "fix": "-b\n+a\n", "fix_right": True}
    none = {"line_right": False, "seconds": 50.0, "repairs": [], "fix": ""}
    rows = [
        row("a", "killed", repaired={"stage_right": True, "line_among_three": True, "named": True, **fixed}),
        row(
            "b",
            "killed",
            held_out=True,
            repaired={"stage_right": False, "line_among_three": True, "named": True, **none},
        ),
        row("c", "killed"),
    ]
    found = report(rows)["with_repair"]
    assert (found["total"], found["line_rate"], found["without"]["line_rate"]) == (2, 0.5, 0.0)
    assert (found["stage_rate"], found["without"]["stage_rate"]) == (0.5, 1.0)
    assert (found["repaired_rate"], found["fixed_rate"], found["fixed_right_rate"]) == (0.5, 0.5, 0.5)
    assert (found["heldout_total"], found["heldout_line_rate"], found["heldout_fixed_rate"]) == (1, 0.0, 0.0)
    assert (found["seconds_per_mutant"], found["seconds_per_mutant_median"]) == (40.0, 40.0)


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    draw([row("a", "killed"), row("c", "survived")], tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert "the loose gate" in text and ">mask<" in text
