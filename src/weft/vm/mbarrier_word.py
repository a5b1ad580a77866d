"""The 64 bits of an mbarrier, which are opaque in PTX: Weft's layout, for the interpreter and the compiled path.

    bits  0-19  arrivals still missing in this phase
    bits 20-39  arrivals of the next phase
    bits 40-47  number of the phase
    bits 48-63  a mark, by which memory that is not an mbarrier is recognised
The state that an arrival returns is the word before it.
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
INVALID = 0
"""The word after `mbarrier.inval`."""
