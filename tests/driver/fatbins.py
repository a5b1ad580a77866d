"""Fatbins for the tests: the container as nvcc writes it, with members that are plain or packed."""

import struct
from dataclasses import dataclass

import lz4.block
import zstandard

PTX, CUBIN = 1, 2
PLAIN, LZ4, ZSTD = 0, 0x2000, 0x8000


@dataclass(frozen=True)
class Member:
    """One member before packing."""

    kind: int
    sm: int
    data: bytes
    packing: int = PLAIN


def fatbin(*members: Member) -> bytes:
    """Return the container."""
    body = b"".join(map(_packed, members))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _packed(member: Member) -> bytes:
    packed = member.data
    if member.packing == LZ4:
        packed = lz4.block.compress(member.data, store_size=False)
    elif member.packing == ZSTD:
        packed = zstandard.ZstdCompressor().compress(member.data)
    padded = packed + b"\0" * (-len(packed) % 8)
    size = len(packed) if member.packing else 0
    raw = len(member.data) if member.packing else 0
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", member.kind, 0x0101, 64, len(padded), size, 64, 8, 7, member.sm, 0, 0, member.packing, 0, raw
    )
    return head + padded
