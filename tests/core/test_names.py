"""The suggestions for a name that does not exist."""

import pytest

from weft.core.names import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("mision", ("mission", "small"), "mission"),
        ("l5", ("l4", "a100"), "l4"),
        ("H100", ("h100", "a100"), "h100"),
        ("Hq", ("HQ", "HKV"), "HQ"),
        ("init", ("memcheck", "initcheck"), "initcheck"),
    ],
)
def test_a_close_name_is_suggested(name: str, known: tuple[str, ...], meant: str) -> None:
    assert did_you_mean(name, known) == f" (did you mean {meant}?)"


def test_nothing_is_suggested_for_a_name_without_a_similar_one() -> None:
    assert did_you_mean("xyz", ("mission", "small")) == "" == did_you_mean("mission", ())
