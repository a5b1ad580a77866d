"""An entry of the queue of bulk copies: a box of five dimensions, of which the last ones may have one element."""

from ..context import WORKER_BULK, Field
from ..ir import Builder, Value, const
from .shape import get

ENTRY_MOVE = Field(0, "ptr")
"""The function that moves the bytes: (warp, entry, i32 lane mask, i32 site)."""
ENTRY_ORIGIN = Field(8, "i64")
"""Offset of the tensor in the global arena."""
ENTRY_STRIDE = Field(16, "i64")
"""Bytes between elements of the dimensions 1 to 4."""
ENTRY_DIM = Field(48, "i32")
ENTRY_COUNT = Field(68, "i32")
"""Elements to move in each dimension."""
ENTRY_STEP = Field(88, "i32")
ENTRY_AT = Field(108, "i32")
"""Coordinates of the first element."""
ENTRY_ROWS = Field(128, "i32")
"""gather4: the four coordinates in dimension 1."""
ENTRY_GATHERS = Field(144, "i32")
ENTRY_ITEM = Field(148, "i32")
"""Bytes of an element."""
ENTRY_SWIZZLE = Field(152, "i32")
"""Which of the address bits 7 to 9 are mixed into bits 4 to 6: 0, 1, 3 or 7."""
ENTRY_FILL = Field(156, "i32")
ENTRY_TYPE = Field(160, "i32")
ENTRY_SHARED = Field(164, "i32")
ENTRY_SIZE = Field(168, "i32")
"""Bytes of the box."""
ENTRY_MBARRIER = Field(172, "i32")
"""The shared address of the mbarrier that counts the bytes of a load; NO_MBARRIER for a store."""
ENTRY_GROUP = Field(176, "i32")
ENTRY_WARP = Field(180, "i32")
ENTRY_LANE = Field(184, "i32")
"""The issuing lane, as a mask."""
ENTRY_SITE = Field(188, "i32")
ENTRY_STATE = Field(192, "i32")
"""1 until it is carried out."""
ENTRY_BYTES = 256
NO_MBARRIER = -1
DIMS = 5


def entry_at(b: Builder, worker: Value, number: Value) -> Value:
    """Return an entry of the CTA's queue."""
    return b.offset(get(b, worker, WORKER_BULK), b.op("mul", b.cast("zext", number, "i64"), const("i64", ENTRY_BYTES)))
