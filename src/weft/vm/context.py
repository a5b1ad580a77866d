"""The records that compiled code and host share: byte offsets, defined once, used by both.

Grid: what is launched. Worker: a place for a CTA; a host thread has a ring of them, usually one. Warp: 32 lanes.
Compiled code receives the warp's record as its first argument and reaches the rest from there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A member of a record: its offset and its LLVM type."""

    at: int
    ty: str


# Grid: one per launch, read by all workers; `next` is taken atomically.
GRID_NEXT = Field(0, "i64")
GRID_TOTAL = Field(8, "i64")
GRID_ORDER = Field(16, "ptr")
"""CTA numbers in the order they start (u32), or null for 0, 1, 2 and so on."""
GRID_DIM = Field(24, "i32")
"""gridDim x, y, z."""
GRID_STOP = Field(40, "i32")
"""Set by a worker that stops, so that the others take no new CTA."""
GRID_BYTES = 64

# Worker: one per CTA that a host thread is running.
WORKER_GRID = Field(0, "ptr")
WORKER_WARPS = Field(8, "ptr")
WORKER_WARP_COUNT = Field(16, "i32")
WORKER_BUSY = Field(20, "i32")
"""1 while a CTA is running; a worker can return to the host and continue later."""
WORKER_THREADS = Field(24, "i32")
"""Threads of the CTA that have not exited."""
WORKER_CTA = Field(28, "i32")
WORKER_SHARED = Field(32, "ptr")
WORKER_SHARED_BYTES = Field(40, "i64")
WORKER_SLICE = Field(48, "i64")
"""Loop iterations a warp may run before it yields."""
WORKER_BUDGET = Field(56, "ptr")
"""i64 of the host thread: loop iterations left before the loop budget is exhausted."""
WORKER_REPORTS = Field(64, "ptr")
WORKER_REPORT_COUNT = Field(72, "i32")
WORKER_REPORT_CAPACITY = Field(76, "i32")
WORKER_STOPS_AT = Field(80, "i32")
"""The report at which the launch is stopped; 0: none."""
WORKER_CALL_HOST = Field(88, "ptr")
"""Host function for printf, assert and regions: (worker, warp, call number, lane mask); -1: a new CTA."""
WORKER_WARP_ORDER = Field(96, "ptr")
"""Warp numbers (u32) in the order the scheduler visits them."""
WORKER_BLOCK_THREADS = Field(104, "i32")
WORKER_FAST = Field(112, "ptr")
WORKER_DIVERGENT = Field(120, "ptr")
"""The code for warps in step, and the code for divergent warps."""
WORKER_STATUS = Field(128, "i32")
WORKER_PROBE = Field(136, "ptr")
"""Memory of the probes that are compiled in."""
WORKER_FRAMES = Field(144, "ptr")
WORKER_FRAME_BYTES = Field(152, "i64")
"""Bytes of all warps' frames to clear for a new CTA; 0 where every register is set before it is read."""
WORKER_RESERVED = Field(160, "i64")
WORKER_RESERVED_BYTES = Field(168, "i64")
"""Address and size of the system's part of shared memory, which is zero when a CTA begins; 0 if there is none."""
WORKER_FRUITLESS = Field(176, "i32")
"""Rounds since an mbarrier changed or a warp did more than to test one."""
WORKER_WRITTEN = Field(448, "ptr")
"""A byte per byte of global memory: 255 where it was written; null if no checker uses it."""
WORKER_LOCAL_WRITTEN = Field(456, "ptr")
"""The same for the local memory of all warps, in the same layout."""
WORKER_LOCAL_BYTES = Field(464, "i64")
WORKER_NEXT = Field(472, "ptr")
"""The next place of the host thread's ring."""
WORKER_RING = Field(480, "i32")
"""Places in the ring: CTAs that make progress together."""
WORKER_BOARD = Field(488, "ptr")
"""Memory of the probes for the entire launch: one per host thread, for all the CTAs it runs."""
WORKER_BARRIERS = Field(192, "i32")
"""16 records of BARRIER_BYTES."""
WORKER_REGION_PLACES = Field(512, "i32")
"""32 shared addresses: the arguments of a WEFT_REGION, then the host's answers."""
WORKER_REGION_BYTES = Field(640, "i32")
WORKER_REGIONS = Field(768, "i32")
"""Whether this CTA, or the one before, declared a region."""
WORKER_BULK = Field(776, "ptr")
"""Bulk copies of the CTA that are not carried out (`runtime/bulk.py`)."""
WORKER_BULK_COUNT = Field(784, "i32")
WORKER_BULK_CAPACITY = Field(788, "i32")
WORKER_BULK_WHEN = Field(792, "i32")
"""When they are carried out: BULK_LATE, BULK_AT_ISSUE or BULK_SHUFFLED."""
WORKER_BULK_SEED = Field(796, "i32")
WORKER_BULK_FINISH = Field(800, "ptr")
"""The function that ends the bulk copies of a CTA; null if the kernel has none."""
WORKER_WARPGROUPS = Field(808, "ptr")
"""The last steps of each warpgroup (`runtime/warpgroups.py`)."""
WORKER_WARPGROUPS_BYTES = Field(816, "i64")
"""Bytes of them to clear for a new CTA; 0 if the kernel has no such steps."""
WORKER_WARPGROUPS_FINISH = Field(824, "ptr")
"""The function that compares the warps of each group when a CTA ends; null in that case."""
WORKER_REGISTERS = Field(832, "i32")
"""Registers of each thread when a CTA starts; 0: not known, or `setmaxnreg` has no effect."""
WORKER_RANK = Field(836, "i32")
"""The CTA's rank in its cluster."""
WORKER_PEERS = Field(840, "ptr")
"""The workers of the cluster (ptr), by rank."""
WORKER_CLUSTER = Field(848, "i32")
"""CTAs of the cluster."""
WORKER_PHASE = Field(852, "i32")
"""Rank 0: phases of the cluster's barrier that are over."""
WORKER_BYTES = 896
BULK_LATE, BULK_AT_ISSUE, BULK_SHUFFLED = range(3)

BARRIER_BYTES = 16
BARRIER_ARRIVED = Field(0, "i32")
BARRIER_EXPECTED = Field(4, "i32")
"""0: all threads of the CTA that have not exited."""
BARRIER_TRUE = Field(8, "i32")
"""bar.red: arrived threads whose predicate was true."""
BARRIER_RESULT = Field(12, "i32")
"""bar.red: the count of the last completed phase (popc), all = (arrived == true)."""
BARRIER_COUNT = 16

# Warp.
WARP_TABLE = Field(0, "ptr")
"""Addresses of the runtime functions the kernel imports, in import order."""
WARP_FRAME = Field(8, "ptr")
WARP_SHARED = Field(16, "ptr")
"""Host address of shared address 0."""
WARP_SHARED_LIMIT = Field(24, "i64")
"""First shared address past the end."""
WARP_GLOBAL = Field(32, "ptr")
"""Host address of the global arena."""
WARP_GLOBAL_BYTES = Field(40, "i64")
WARP_PARAMS = Field(48, "ptr")
WARP_LOCAL = Field(56, "ptr")
"""Local memory of the 32 lanes, words interleaved: byte a of lane l is at (a >> 2) * 128 + 4 l + (a & 3)."""
WARP_LOCAL_LIMIT = Field(64, "i64")
WARP_WORKER = Field(72, "ptr")
WARP_COPIES = Field(80, "ptr")
"""Asynchronous copies that no wait has covered yet."""
WARP_COPY_COUNT = Field(88, "i32")
WARP_COPY_CAPACITY = Field(92, "i32")
WARP_CTAID = Field(96, "i32")
WARP_NCTAID = Field(108, "i32")
WARP_NTID = Field(120, "i32")
WARP_ID = Field(132, "i32")
WARP_COUNT = Field(136, "i32")
WARP_LIVE = Field(140, "i32")
"""Lanes that exist and have not exited."""
WARP_BLOCKED = Field(144, "i32")
"""Lanes that wait at a CTA barrier."""
WARP_DIVERGENT = Field(148, "i32")
"""0: all lanes run in step, 1: lanes have their own program counters."""
WARP_RESUME = Field(152, "i32")
"""Where the compiled code continues."""
WARP_SHARED_DYNAMIC = Field(156, "i32")
WARP_SLICE = Field(160, "i64")
WARP_CLOCK = Field(168, "i64")
WARP_PARAM_BYTES = Field(176, "i64")
WARP_COUNTS = Field(184, "ptr")
"""u64 counters: visits of each run of blocks by warps in step, then visits of each block by divergent warps, then two
marks for each block: whether its branch was taken, and not taken (`find_hidden_ways`)."""
WARP_OWNERS = Field(896, "ptr")
"""u32 per 256 bytes of global memory: the number of the allocation there, 0 for none."""
WARP_ALLOCATIONS = Field(904, "ptr")
"""Per allocation: i64 offset in the arena, i64 size; number 0 has size 0."""
WARP_SHARED_OWNERS = Field(920, "ptr")
"""u32 per 64 bytes of shared memory: the number of the array there, 0 for none."""
WARP_SHARED_OBJECTS = Field(928, "ptr")
"""Per array: i64 offset in the window, i64 size; number 0 has size 0."""
WARP_SPENT = Field(912, "i32")
"""Lanes of a divergent warp that used a turn since every lane that could run last had one."""
WARP_POLLED = Field(916, "i32")
"""The address of an mbarrier, if it ended its turn because the phase it waits for is not over; otherwise 0."""
WARP_LOCAL_WRITTEN = Field(936, "ptr")
"""A byte per byte of local memory: 255 where it was written; null if no checker uses it."""
WARP_RELEASED = Field(944, "i32")
"""Lanes at a bar.warp.sync whose other lanes, at another one with the same mask, have continued."""
WARP_TID = Field(192, "i32")
"""tid.x of the 32 lanes, then tid.y, then tid.z."""
WARP_PC = Field(576, "i32")
"""Block number of each lane."""
WARP_WAITING = Field(704, "i32")
"""Per barrier: the lanes that wait at it."""
WARP_GROUP = Field(768, "i32")
"""Per lane: cp.async groups committed so far."""
WARP_SMID = Field(948, "i32")
"""The SM that its CTA is on."""
WARP_NSMID = Field(952, "i32")
WARP_SITES = Field(960, "i32")
"""Per barrier: the instruction at which lanes of this warp last began to wait at it."""
WARP_BULK_GROUP = Field(1024, "i32")
"""Per lane: groups of bulk copies committed so far."""
WARP_STEPS = Field(1152, "i32")
"""Steps that it took with its warpgroup; -1: they differ from those of the others, which was reported."""
WARP_LAST_STEP = Field(1156, "i32")
"""The instruction of the last one."""
WARP_HASH = Field(1160, "i64")
"""A hash of them."""
WARP_REGISTERS = Field(1168, "i32")
"""Registers of each of its threads."""
WARP_REPEATS = Field(1172, "i32")
"""Whether the loop of the last test (WARP_POLLED) changes nothing: it fails until another warp acts."""
WARP_MISSING = Field(1176, "i64")
"""Two numbers of what it waits for, by WARP_POLLED. POOL: the registers it needs, and how many are free. CLUSTER: the
threads that miss, and all. GROUP: the number of a warp that is behind, and the steps it has taken."""
WARP_HOME = Field(1184, "ptr")
"""The worker that it belongs to. WARP_WORKER and WARP_SHARED are those of another CTA while the warp accesses it."""
WARP_CLUSTER = Field(1192, "i32")
"""CTAs of a cluster in x, y and z."""
WARP_ARRIVED = Field(1204, "i32")
"""Lanes that arrived at the barrier of the cluster in its current phase."""
WARP_ODD = Field(1208, "i32")
"""Lanes that last arrived there in an odd phase."""
WARP_TO_WAIT = Field(1212, "i32")
"""Lanes that arrived there and did not wait since."""
WARP_BYTES = 1216
POOL, CLUSTER, GROUP = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
"""In WARP_POLLED: the warp waits for registers, its cluster or its warpgroup, not for an mbarrier."""

REPORT_BYTES = 32
"""code i32, site i32, lanes i32, warp i32, address i64, CTA i32, detail i32."""

# The values that a warp's code returns to the scheduler.
EXITED, BLOCKED, YIELDED, DIVERGED, CONVERGED, TRAPPED, STUCK = range(7)
# The values that a worker returns to the host.
DONE, NEED_DIVERGENT, STOPPED = range(3)
# Codes in reports that the virtual GPU makes without probes.
OUT_OF_BOUNDS, MISALIGNED, DEADLOCK, OUT_OF_BUDGET, TRAP, COPY_QUEUE_FULL = range(1, 7)
BAD_BARRIER, BAD_COUNT, BAD_INDEX = range(7, 10)
BAD_MASK, EXITED_LANES, SPLIT_BARRIER, TOO_MANY, MIXED_COUNTS = range(16, 21)
BAD_MBARRIER, OUT_OF_ROOM, NO_ARRIVAL = 21, 22, 23
BAD_MAP, BAD_SIZE, EARLY_PHASE, NOT_AWAITED, GIVEN_UP = range(24, 29)
OTHER_STEP, OTHER_DESCRIPTOR, FEWER_STEPS = range(29, 32)
INCOMPLETE_GROUP, NO_REGISTERS, WRONG_REGISTERS = range(10, 13)
PEER_GONE, ARRIVED_TWICE, NOT_ARRIVED = range(13, 16)
NO_CLUSTER, BEHIND = 32, 33
FIRST_PROBE_CODE = 34
