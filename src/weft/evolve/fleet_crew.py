"""A crew that works elsewhere: evaluations are queued here, judged by a fleet, and waited for.

A generation is proposed when all of the last one is judged, so it does not matter who judged what, or in which order.
"""

import time
from types import TracebackType
from typing import Self

from weft.fleet.fleets import Fleet
from weft.store.records import State
from weft.store.store import Store

from .crew import Crew, Done
from .settings import Settings

FIRST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5
"""Between two looks at the queue."""
OPEN = (State.QUEUED, State.LEASED)


class FleetCrew(Crew):
    """Has one fork server of its own, to see whether a candidate's code is new."""

    def __init__(self, store: Store, settings: Settings, owner: str, run_id: int, fleet: Fleet) -> None:
        super().__init__(store, settings, owner, 1)
        self.run_id, self.fleet = run_id, fleet

    def __enter__(self) -> Self:
        self.fleet.start(self.run_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fleet.close()
        super().__exit__(kind, error, trace)

    def work(self, run_id: int, done: Done) -> None:
        """Until nothing of the run is queued or leased."""
        waiting = {row.id for row in self.store.evaluations(run_id) if row.state in OPEN}
        pause = FIRST_WAIT_SECONDS
        while waiting:
            self.fleet.tend()
            time.sleep(pause)
            still = {row.id for state in OPEN for row in self.store.evaluations(run_id, state=state)}
            rows = [self.store.evaluation(number) for number in sorted(waiting - still)]
            ended = [row for row in rows if row.state not in OPEN]  # one may have moved between the two reads
            for row in ended:
                done(row)
            waiting -= {row.id for row in ended}
            pause = FIRST_WAIT_SECONDS if ended else min(1.5 * pause, LONGEST_WAIT_SECONDS)
