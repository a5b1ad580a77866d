"""Which bits of a labelled byte are uninitialised: bit-fields are set one by one, by reading and writing full words.

The highest eight bits of a label are that mask, the others the reads it depends on; a label without a mask is empty.
"""

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.uint64]
"""Per lane and byte: the set of reads the byte depends on, and which of its bits do."""
_SHIFT = np.uint64(56)
ALL_BITS = np.uint64(0xFF << 56)
MOST_SITES = 56


def whole(labels: Labels) -> Labels:
    """Return the labels with all bits uninitialised, for bytes that depend on others in some way."""
    return np.where(labels != 0, labels | ALL_BITS, np.uint64(0))


def bits_of(labels: Labels) -> npt.NDArray[np.uint8]:
    """Return the bits of each byte that are uninitialised."""
    return (labels >> _SHIFT).astype(np.uint8)


def keep_bits(labels: Labels, bits: npt.NDArray[np.uint8]) -> Labels:
    """Return the labels with only these bits kept; the others are known."""
    left = bits_of(labels) & bits
    return np.where(left != 0, labels & ~ALL_BITS | left.astype(np.uint64) << _SHIFT, np.uint64(0))


def extended(labels: Labels) -> Labels:
    """Return the labels with the bytes that a sign is extended to."""
    sign = whole(keep_bits(labels[:, -1:], np.full((32, 1), 0x80, np.uint8)))
    return np.concatenate([labels, np.repeat(sign, 8 - labels.shape[1], axis=1)], axis=1)


def moved(labels: Labels, right: npt.NDArray[np.int64], *, signed: bool = False) -> Labels:
    """Return the labels of values shifted right by so many bits (left if negative)."""
    size = labels.shape[1]
    result = np.zeros_like(labels)
    for lane in np.flatnonzero(labels.any(axis=1)):
        unknown = np.unpackbits(bits_of(labels[lane]), bitorder="little").astype(bool)
        sites = np.where(unknown, np.repeat(labels[lane] & ~ALL_BITS, 8), np.uint64(0))
        source = np.arange(8 * size) + int(right[lane])
        if signed:
            source = np.minimum(source, 8 * size - 1)
        inside = (source >= 0) & (source < 8 * size)
        source = np.where(inside, source, 0)
        masks = np.packbits(unknown[source] & inside, bitorder="little").astype(np.uint64) << _SHIFT
        parts = np.where(inside, sites[source], np.uint64(0)).reshape(size, 8)
        result[lane] = np.bitwise_or.reduce(parts, axis=1) | masks
    return result
