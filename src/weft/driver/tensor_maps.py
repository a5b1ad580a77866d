"""cuTensorMapEncodeTiled and cuTensorMapReplaceAddress: what the program describes → the 128 bytes of a tensor map."""

import struct
from dataclasses import replace

from weft.core.errors import LaunchError, Unsupported
from weft.vm.tensor_map import BYTES, DRIVER_TYPES, MOST_DIMS, TensorMap, decode

from .protocol import Answer, Code, Request
from .records import Options, Refused
from .report import Report

_DESCRIPTION = struct.Struct("=Q5Q4Q5I5I6i")
_CALLS = ("cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress")
_FIRST_SM = 90
_TYPES, _SWIZZLES, _PROMOTIONS, _INTERLEAVES = 16, 7, 4, 3
"""Numbers that the documentation names; Weft's maps have fewer types and swizzles."""
_LEAST_RANK_INTERLEAVED = 3


def answer_map(request: Request, options: Options, report: Report) -> Answer:
    """Return the bytes of a new or changed map; INVALID_VALUE, and a line that says why, for one that CUDA refuses."""
    which, _, address, *_ = request.arguments
    if which >= len(_CALLS) or len(request.blob) != (BYTES if which else _DESCRIPTION.size):
        return Answer(Code.INVALID_VALUE)
    if options.sm < _FIRST_SM:
        report.say(f"{_CALLS[which]}: GPUs before compute capability 9.0 have no tensor maps (--gpu h100)")
        return Answer(Code.NOT_SUPPORTED)
    try:
        made = replace(decode(request.blob), address=address) if which else _described(request.blob)
        return Answer(blob=made.encode())
    except LaunchError as error:
        report.say(f"{_CALLS[which]}: {error}")
        return Answer(Code.INVALID_VALUE)
    except Unsupported as error:
        raise Refused(_CALLS[which], str(error)) from error


def _described(blob: bytes) -> TensorMap:
    address, *rest = _DESCRIPTION.unpack(blob)
    kind, rank, interleave, swizzle, promotion, fill = rest[-6:]
    arrays = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    dims, strides, box, steps = (tuple(array[:rank]) for array in arrays)
    known = zip((kind, swizzle, promotion, interleave), (_TYPES, _SWIZZLES, _PROMOTIONS, _INTERLEAVES), strict=True)
    if not 1 <= rank <= MOST_DIMS or any(not 0 <= number < count for number, count in known):
        numbers = f"rank {rank}, type {kind}, interleave {interleave}, swizzle {swizzle}, promotion {promotion}"
        raise LaunchError(f"tensor map: one of these numbers has no meaning: {numbers}")
    if interleave and rank < _LEAST_RANK_INTERLEAVED:
        raise LaunchError(
            f"tensor map: an interleaved layout of {rank} dimensions; it needs at least {_LEAST_RANK_INTERLEAVED}"
        )
    if kind >= len(DRIVER_TYPES):
        raise Unsupported(f"a tensor map of type {kind} (tf32, packed 4 or 6 bits) is not supported")
    if swizzle > 3:
        raise Unsupported("a tensor map with a swizzle of atoms of 32 or 64 bytes is not supported")
    if not all(steps):
        raise LaunchError("tensor map: an element stride of 0")
    steps = (1, *steps[1:])  # dimension 0 has none, as documented
    return TensorMap(address, dims, strides[: rank - 1], box, DRIVER_TYPES[kind], swizzle, steps, fill, interleave)
