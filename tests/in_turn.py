"""Long lists of cases of one kind: a part runs in every run of the tests, the rest in `scripts/test -m sweep`."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, cases: Iterable[Any], *, several: bool = False) -> list[Any]:
    """Return the cases: the first of each `count` always runs, the others in the sweep; `several`: values per name."""
    return [
        pytest.param(*(case if several else (case,)), marks=[pytest.mark.sweep] * (number % count > 0))
        for number, case in enumerate(cases)
    ]
