"""Long lists of cases of one kind: a part runs in every run of the tests, the rest in `scripts/test -m sweep`."""

from collections.abc import Iterable
from typing import Any

import pytest


def every_second(cases: Iterable[Any]) -> list[Any]:
    """The first, the third and so on always; those between them in the sweep."""
    return [pytest.param(case, marks=[pytest.mark.sweep] * (number % 2)) for number, case in enumerate(cases)]
