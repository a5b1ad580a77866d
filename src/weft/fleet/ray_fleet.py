"""Workers as actors of a Ray cluster: one per slot, warm, placed by resource. The store, not Ray, is the queue.

Ray only keeps a worker on every slot. An evaluation is never a Ray task, so Ray never retries one.
"""

import contextlib
import importlib
import ipaddress
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError
from weft.store.errors import StoreError
from weft.store.records import State
from weft.store.store import Store, open_store

from .terms import Terms
from .worker import FleetError, Worker, give_back_for, worker_name

NAMESPACE = "weft"
VIRTUAL, REAL = "vgpu", "GPU"
OBJECT_STORE_BYTES = 80 << 20
"""The minimum that Ray accepts: Weft stores nothing in it."""
QUICK_SECONDS = 20.0
QUICK_DEATHS = 5
"""The fleet gives up after this many actors of a slot died within this time after their start."""


class RaySlot:
    """The actor. It ends when it was idle for too long, and frees the resources that it reserves."""

    def __init__(self, where: str, owner: str, terms: dict[str, Any]) -> None:
        self.where, self.owner, self.terms = where, owner, Terms(**terms)

    def work(self) -> None:
        """Work until idle for too long."""
        with open_store(self.where) as store:
            Worker(store, self.owner, self.terms).work()
        _ray().actor.exit_actor()


@dataclass(frozen=True)
class _Hired:
    """The driver's record of a slot's actor."""

    slot: int
    owner: str
    actor: Any
    future: Any
    since: float


class RayFleet:
    """An actor on every slot of a cluster that runs already, or of one started here for the run."""

    def __init__(
        self,
        store: Store,
        where: str,
        *,
        address: str | None = None,
        resource: str = VIRTUAL,
        slots: int = 0,
        terms: Terms = Terms(),  # noqa: B008  (frozen)
    ) -> None:
        self.store, self.where, self.address, self.resource, self.slots = store, where, address, resource, slots
        self.terms = replace(terms, needs=None) if resource == REAL else terms
        self._run = 0
        self._hired: list[_Hired] = []
        self._quick: dict[int, int] = {}

    @classmethod
    def parse(cls, spelled: str, store: Store, where: str, terms: Terms) -> "RayFleet":
        """Parse `ray`, `ray:auto` or `ray:10.0.0.1:6379`, each with an optional `/GPU`."""
        rest, _, resource = spelled.partition("/")
        address = rest.partition(":")[2] or None
        if resource not in ("", VIRTUAL, REAL):
            raise UsageError(f"--fleet {spelled}: actors are placed by {VIRTUAL} or {REAL}")
        if address not in (None, "auto"):
            require_private(str(address).rpartition(":")[0] or str(address))
        _ray()
        return cls(store, where, address=address, resource=resource or VIRTUAL, terms=terms)

    def start(self, run_id: int) -> None:
        """Join or start the cluster, and start the actors."""
        self._run, self.terms = run_id, replace(self.terms, run_id=run_id)
        ray = _ray()
        quiet = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
        if self.address is None:
            require_private(ray.util.get_node_ip_address())
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            count = self.slots or len(os.sched_getaffinity(0))
            ray.init(
                address="local",
                num_cpus=count,
                resources={VIRTUAL: count},
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quiet,
            )
        else:
            try:
                ray.init(address=self.address, **quiet)
            except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
                raise FleetError(f"cannot join the Ray cluster {self.address}: {error}") from error
        nodes = [node for node in ray.nodes() if node["Alive"]]
        for node in nodes:
            require_private(node["NodeManagerAddress"])
        if len(nodes) > 1 and "://" not in self.where:
            raise UsageError("workers on several machines need a store they all reach: a postgresql:// URL as --store")
        offered = int(ray.cluster_resources().get(self.resource, 0))
        if not offered:
            raise UsageError(
                f"no node of the cluster offers {self.resource}: start them with "
                f"`ray start --resources '{{\"{VIRTUAL}\": 8}}'`, one per evaluation at once"
            )
        self._hired = [self._hire(slot) for slot in range(min(offered, self.slots or offered))]

    def tend(self) -> None:
        """Start a new actor where one is gone, and queue its evaluations again."""
        ray = _ray()
        gone, _ = ray.wait([each.future for each in self._hired], num_returns=len(self._hired), timeout=0)
        for hired in [each for each in self._hired if each.future in gone]:
            try:
                ray.get(hired.future)
            except ray.exceptions.RayActorError as error:
                self._gone(hired, str(error))
            except ray.exceptions.RayTaskError as error:
                raise FleetError(f"a worker on the Ray cluster cannot continue: {error.cause}") from error
            self._hired.remove(hired)
            self._hired.append(self._hire(hired.slot))

    def close(self) -> None:
        """End the run's actors; a cluster that was started here ends too."""
        ray = _ray()
        for hired in self._hired:
            ray.kill(hired.actor)
            self.store.reclaim(hired.owner)
            with contextlib.suppress(StoreError):  # the actor may not have started
                self.store.stop_worker(hired.owner)
        self._hired = []
        ray.shutdown()

    def _hire(self, slot: int) -> _Hired:
        ray, owner = _ray(), f"{worker_name()}-ray{slot}"
        reserve = {"num_gpus": 1} if self.resource == REAL else {"resources": {self.resource: 1}}
        # An actor of a cluster outlives its driver and continues with the queue; the next driver finds it by its name.
        stay = {"name": f"weft-{self._run}-{slot}", "lifetime": "detached", "get_if_exists": True}
        options = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, **reserve}
        actor = (
            ray.remote(RaySlot)
            .options(**options, **({} if self.address is None else stay))
            .remote(self.where, owner, asdict(self.terms))
        )
        return _Hired(slot, owner, actor, actor.work.remote(), time.monotonic())

    def _gone(self, hired: _Hired, why: str) -> None:
        for row in self.store.evaluations(self._run, state=State.LEASED):
            give_back_for(self.store, hired.owner, row, f"its actor is gone: {why}")
        with contextlib.suppress(StoreError):  # the actor may not have started
            self.store.stop_worker(hired.owner)
        quick = time.monotonic() - hired.since < QUICK_SECONDS
        self._quick[hired.slot] = self._quick.get(hired.slot, 0) + 1 if quick else 0
        if self._quick[hired.slot] >= QUICK_DEATHS:
            raise FleetError(f"{QUICK_DEATHS} actors in a row died within {QUICK_SECONDS:g} s: {why}")


def require_private(address: str) -> None:
    """Refuse a public address: Ray listens on every interface and runs code for anyone who has the token."""
    try:
        private = ipaddress.ip_address(address).is_private
    except ValueError as error:
        raise UsageError(f"{address}: give a Ray cluster by its IP address, such as 10.0.0.1:6379") from error
    if not private:
        raise UsageError(f"{address} is a public address, and Ray listens on every interface: use a private network")


def _ray() -> Any:
    """Import Ray, with authentication on and usage statistics off."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        raise UsageError("RAY_AUTH_MODE turns authentication off: unset it, or set it to token, on every node")
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's default of 15 would give every other process priority. A cluster's nodes have their own environment.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ToolMissing(f"`--fleet ray` needs Ray: {install_command('fleet')}") from error
