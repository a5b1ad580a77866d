"""Which accesses of threads an agent follows: those between which a fence of proxies (fence.proxy.async) must be.

Threads access memory in the generic proxy, bulk copies and products of a warpgroup in the asynchronous one. Of the
accesses of one granule, in the order of the log:

    write of a thread, then agents, until the next write     each of them follows the write
    reads of a thread, then a bulk load that overwrites it    the load follows the reads
What came before the last write was checked, or is covered, where that write is. After an agent no fence is needed:
observing its completion is one.
"""

import numpy as np
import numpy.typing as npt

from .race_rows import Rows

_Indices = npt.NDArray[np.intp]


def before_agents(rows: Rows) -> tuple[_Indices, _Indices]:
    """Return pairs of rows: an access of a thread, and the access of an agent that follows it in the log."""
    none = np.zeros(0, np.intp)
    granules = np.unique(rows["granule"][rows["agent"] > 0])
    here = np.flatnonzero(np.isin(rows["granule"], granules))
    if not len(here):
        return none, none
    here = here[np.lexsort([rows["record"][here], rows["granule"][here]])]
    granule, agent, write = rows["granule"][here], rows["agent"][here] > 0, rows["write"][here] > 0
    position = np.arange(len(here))
    start = np.flatnonzero(np.append(True, granule[1:] != granule[:-1]))
    begins = start[np.cumsum(np.append(True, granule[1:] != granule[:-1])) - 1]
    last = np.maximum.accumulate(np.where(write, position, -1))
    last = np.append(-1, last[:-1])
    follows = np.flatnonzero(agent & (last >= begins))
    follows = follows[~agent[last[follows]]]
    following = np.minimum.accumulate(np.where(write, position, len(here))[::-1])[::-1]
    read = np.flatnonzero(~agent & ~write & (following < len(here)))
    read = read[(granule[following[read]] == granule[read]) & agent[following[read]]]
    return here[np.append(last[follows], read)], here[np.append(follows, following[read])]
