"""What commands print, read back."""

import json

from weft.journal.records import ShapeResult
from weft.journal.watch_command import TAIL_LINES, last_line, plain, shape_results, tail

PIPED = (
    "shape\tscalar\tfa1\nsmall\t3 of 3\t2 of 3\nmission\t3 of 3\tunsupported\n"
    "6 of 6 workloads passed\nERROR SUMMARY: 0 errors\n"
)
DRAWN = """\
┏━━━━━━━┳━━━━━━━━┓
┃ shape ┃ scalar ┃
┡━━━━━━━╇━━━━━━━━┩
│ small │ 1 of 1 │
└───────┴────────┘
1 of 1 workloads passed
"""


def verdict(shape: str, status: str, **more: object) -> dict[str, object]:
    return {"workload": {"shape": shape}, "status": status, "debug_build": False, **more}


def test_the_table_of_a_pipe() -> None:
    assert shape_results(PIPED) == (
        ShapeResult("small", "scalar 3 of 3, fa1 2 of 3"),
        ShapeResult("mission", "scalar 3 of 3, fa1 unsupported"),
    )


def test_the_table_of_a_terminal() -> None:
    assert shape_results(DRAWN) == (ShapeResult("small", "1 of 1"),)


def test_json() -> None:
    rows = [
        verdict("small", "PASSED"),
        verdict("small", "PASSED", debug_build=True),
        verdict("mission", "INCORRECT_NUMERICAL"),
        verdict("mission", "PASSED"),
    ]
    text = json.dumps({"version": 1, "targets": {"k.cu": {"verdicts": rows}}}, indent=2)
    shapes = (ShapeResult("small", "1 of 1"), ShapeResult("mission", "1 of 2 (INCORRECT_NUMERICAL)"))
    assert shape_results(text) == shapes
    assert last_line(text) == "small: 1 of 1; mission: 1 of 2 (INCORRECT_NUMERICAL)"


def test_other_output_has_no_shapes() -> None:
    for text in ("", "hello\n", "{not json", "[1, 2]", '{"a": {"shape": 1}}', '{"targets": [1]}', "shape\n"):
        assert shape_results(text) == ()


def test_the_last_line_is_the_summary() -> None:
    assert last_line("a\nb\n\n") == "b"
    assert last_line("") == ""
    assert last_line(PIPED) == "6 of 6 workloads passed · ERROR SUMMARY: 0 errors"


def test_what_a_terminal_shows() -> None:
    assert plain("\x1b[1mbold\x1b[0m\r\n10%\r20%\r\n\x1b[?25l") == "bold\n20%\n"


def test_the_tail_is_short() -> None:
    kept = tail("\n".join(map(str, range(1000))) + "\n").splitlines()
    assert len(kept) == TAIL_LINES and kept[-1] == "999"
