"""Maps of the error: the worst stays visible, and unknown elements are not shown as correct."""

import base64

import numpy as np

from weft.report.kernel_maps import MOST_CELLS, MOST_ROWS, error_map
from weft.report.records import ErrorMap
from weft.report.sections.error import BROKEN, KNEE, TOP, UNSEEN, map_data

BLANK = ErrorMap("O", "", "query", "column", (), np.zeros((0, 0, 0)))


def test_small_maps_keep_both_values_of_the_worst_head() -> None:
    expected = np.arange(2 * 3 * 4 * 5, dtype=np.float64).reshape(2, 3, 4, 5)
    actual = expected.copy()
    actual[1, 2, 3, 4] += 8
    made = error_map(BLANK, actual, expected)
    assert made.slices == (
        "batch 0 head 0",
        "batch 0 head 1",
        "batch 0 head 2",
        "batch 1 head 0",
        "batch 1 head 1",
        "batch 1 head 2",
    )
    assert made.first_slice == 5 and made.error[5, 3, 4] == 8 and made.error.sum() == 8
    assert made.actual is not None and made.expected is not None
    assert made.actual[3, 4] == 127 and made.expected[3, 4] == 119


def test_in_large_maps_the_worst_of_a_cell_is_seen() -> None:
    expected = np.zeros((2, 8, 3000, 128))
    actual = expected.copy()
    places = [(0, 0, 0, 0), (0, 3, 2999, 127), (1, 7, 1234, 56)]
    for size, place in enumerate(places, 1):
        actual[place] = size
    made = error_map(BLANK, actual, expected)
    assert made.error.size <= MOST_CELLS and made.error.shape[1] <= MOST_ROWS and made.actual is None
    assert sorted(made.error[made.error > 0]) == [1, 2, 3]
    for size, (b, h, row, column) in enumerate(places, 1):
        assert made.error[b * 8 + h, row // made.rows_per_cell, column // made.columns_per_cell] == size
    assert made.first_slice == 15


def test_nan_is_the_worst_and_unobserved_elements_are_not_errors() -> None:
    expected, actual = np.ones((1, 1, 2, 3)), np.ones((1, 1, 2, 3))
    actual[0, 0, 0] = [1.0, 1.5, np.nan]
    actual[0, 0, 1] = np.nan
    observed = np.isfinite(actual) | np.array([[[[False, False, True], [False] * 3]]])
    made = error_map(BLANK, actual, expected, observed=observed)
    data = map_data((made,))[0]
    assert isinstance(data["slices"], list)
    levels = list(base64.b64decode(data["slices"][0]["levels"]))
    assert levels == [0, TOP, BROKEN, UNSEEN, UNSEEN, UNSEEN]
    assert data["slices"][0]["worst"] == "NaN" and data["high"] == np.log10(0.5)


def test_errors_within_their_limit_stay_below_the_knee() -> None:
    expected, actual = np.ones((1, 1, 1, 5)), 1 + np.array([[[[0.0, 1e-3, 0.01, 0.02, 200.0]]]])
    limits = np.array([[[[0.0, 1e-3, 0.02, 0.01, 0.01]]]])
    made = error_map(BLANK, actual, expected, limits=limits)
    np.testing.assert_allclose(made.error, [[[0, 1, 0.5, 2, 20_000]]])
    data = map_data((made,))[0]
    assert isinstance(data["slices"], list) and data["relative"] is True
    none, at_limit, within, beyond, worst = base64.b64decode(data["slices"][0]["levels"])
    assert none == 0 < within < at_limit <= KNEE < beyond < worst == TOP
    # A limit of zero and an error: the worst level.
    nothing = error_map(BLANK, actual, expected, limits=np.zeros(5))
    assert np.isinf(nothing.error[0, 0, 1:]).all() and nothing.error[0, 0, 0] == 0


def test_stages_without_columns_and_plain_vectors_have_maps_too() -> None:
    rows = error_map(BLANK, np.ones((1, 2, 7)), np.zeros((1, 2, 7)))
    assert rows.error.shape == (2, 7, 1) and rows.slices == ("batch 0 head 0", "batch 0 head 1")
    vector = error_map(BLANK, np.ones(9), np.zeros(9))
    assert vector.error.shape == (1, 1, 9) and vector.slices == ("all",)
