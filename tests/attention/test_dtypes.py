"""Rounding by additions gives the bits of a conversion, and an ulp is the distance to the next value."""

import numpy as np
import pytest

from weft.attention.dtypes import DTYPES, Array, largest, rounded, smallest_normal, ulp


def converted(values: Array, name: str) -> Array:
    with np.errstate(over="ignore"):
        near = np.clip(values, -448.0, 448.0) if name == "e4m3" else values
        return near.astype(DTYPES[name]).astype(values.dtype)


def all_values(name: str) -> Array:
    """Return every finite value of a type, as float64."""
    bits = np.uint16 if DTYPES[name].itemsize == 2 else np.uint8
    with np.errstate(invalid="ignore"):  # NaN
        values = np.arange(np.iinfo(bits).max + 1).astype(bits).view(DTYPES[name]).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def around(name: str) -> Array:
    """Return all values of a type, the middles between them, what is next to either, and values far beyond."""
    exact = all_values(name)
    middles = (exact[1:] + exact[:-1]) / 2
    apart = [np.nextafter(each, sign * np.inf) for each in (exact, middles) for sign in (-1, 1)]
    near32 = [
        np.nextafter(each.astype(np.float32), np.float32(sign)) for each in (exact, middles) for sign in (-9e9, 9e9)
    ]
    ends = np.array(
        [0.0, largest(name), 1.01 * largest(name), 65520.0, 1e30, 3e38, 5e-324, 1e-40, smallest_normal(name)]
    )
    found = np.concatenate([exact, middles, *apart, *near32, ends])
    return np.concatenate([found, -found])


@pytest.mark.parametrize("own", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3"])
def test_rounding_has_the_bits_of_a_conversion(name: str, own: type) -> None:
    with np.errstate(over="ignore"):
        values = around(name).astype(own)
    rng = np.random.default_rng(0)
    spread = (rng.standard_normal(100_000) * 10.0 ** rng.uniform(-9, 6, 100_000)).astype(own)
    for each in (values, spread, spread.reshape(2, 250, -1).swapaxes(0, 2), values[:0]):
        assert rounded(each, name).tobytes() == converted(each, name).tobytes()
    for each in (np.array([np.inf, 1.1, -np.inf], own), np.array(1.1, own)):
        assert rounded(each, name).tobytes() == converted(each, name).tobytes()
    assert np.isnan(rounded(np.array([np.nan, 1.0], own), name)).tolist() == [True, False]


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_an_ulp_reaches_the_next_value(name: str) -> None:
    exact = all_values(name)
    positive = exact[exact >= 0]
    assert np.array_equal(positive[:-1] + ulp(positive[:-1], name), positive[1:])
    assert np.array_equal(ulp(-positive, name), ulp(positive, name))
    assert ulp(np.array([np.inf, -np.inf, np.nan, 0.0]), name).tolist() == [0, 0, 0, positive[1]]


def test_an_ulp_of_float32_is_its_spacing() -> None:
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32) * np.float32(10.0) ** np.arange(
        -30, 20, 0.05, np.float32
    )
    assert np.array_equal(ulp(values, "f32"), np.spacing(np.abs(values)))
