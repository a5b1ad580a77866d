"""The 64 bits of an mbarrier, which are opaque in PTX: Weft's layout, for the interpreter and the compiled path.

    bits  0-19  arrivals still missing in this phase
    bits 20-39  arrivals of the next phase
    bits 40-47  number of the phase
    bits 48-63  a mark, by which memory that is not an mbarrier is recognised
The state that an arrival returns is the word before it. A phase ends when no arrival is missing and no byte is pending
(expect_tx adds to the pending bytes, complete_tx subtracts). Pending bytes are not in the word: behind shared memory
there is a number for every 8 bytes of it, which belongs to the mbarrier there.
"""

COUNT_BITS = 20
COUNT_MASK = (1 << COUNT_BITS) - 1
MOST_COUNT = COUNT_MASK
"""Largest arrival count."""
NEXT_SHIFT = 20
PHASE_SHIFT = 40
PHASE_MASK = 0xFF
MARK_SHIFT = 48
MARK = 0x4D42
MOST_BYTES = (1 << 20) - 1
"""Largest number of pending bytes; as many may be complete before they are expected."""
STATE_MISSING_SHIFT, STATE_BYTES_SHIFT = 24, 44
"""In a report: the address, from bit 24 on the missing arrivals, from bit 44 on the pending bytes (20 bits each)."""
STATE_ADDRESS_MASK = (1 << STATE_MISSING_SHIFT) - 1
INVALID = 0
"""The word after `mbarrier.inval`."""


def waiting_words(missing: int, pending: int) -> str:
    """Return what a phase misses, in words: the bytes only if some are pending."""
    arrivals = f"{missing} arrival{'s' * (missing != 1)}"
    return f"{arrivals} and {pending} byte{'s' * (pending != 1)}" if pending else arrivals
