"""Two Ray nodes in two network namespaces of one machine, one cut off during a run: nothing may be lost or doubled.

    sudo python benchmarks/fault_netns.py [--evaluations 12] [--cut-seconds 40]

The head has PostgreSQL, Ray's head and the driver; the other node has only Ray. Each offers one slot. When both
actors judge, the link goes down: the remote worker reaches neither Ray nor the store. Later the link comes up again,
and the store refuses what the remote worker still sends, because of a higher token. At the end every evaluation must
have one result, finished once, the same as in a supervisor of this process. Needs root and `ip`. The last line is one
JSON object.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.postgres_server import PostgresServer
from tests.fleet.queued import asked, queue
from weft.fleet.ray_fleet import RayFleet
from weft.fleet.terms import Terms
from weft.store.records import State
from weft.store.store import open_store
from weft.supervise.supervisor import Supervisor

HEAD, FAR = "weft_head", "weft_far"
ADDRESS = {HEAD: "10.77.0.1", FAR: "10.77.0.2"}
LINK = {HEAD: "weft0", FAR: "weft1"}
PORT = 6379
LEASE_SECONDS = 15.0
RAY = [
    sys.executable,
    "-m",
    "ray.scripts.scripts",
    "start",
    "--block",
    "--disable-usage-stats",
    "--num-cpus=1",
    "--resources",
    '{"vgpu": 1}',
    "--object-store-memory",
    str(80 << 20),
]


class Server(PostgresServer):
    """A server that listens only on the head's private address."""

    host = ADDRESS[HEAD]

    def start(self) -> None:
        rules = self._data / "pg_hba.conf"
        if ADDRESS[HEAD] not in rules.read_text():
            rules.write_text(rules.read_text() + f"host all all {ADDRESS[HEAD]}/24 scram-sha-256\n")
        super().start()


def sh(*command: str) -> None:
    subprocess.run(command, check=True)


def make_network() -> None:
    """Make two namespaces and a link between them."""
    for name in (HEAD, FAR):
        sh("ip", "netns", "add", name)
        sh("ip", "-n", name, "link", "set", "lo", "up")
    sh("ip", "link", "add", LINK[HEAD], "netns", HEAD, "type", "veth", "peer", "name", LINK[FAR], "netns", FAR)
    for name in (HEAD, FAR):
        sh("ip", "-n", name, "addr", "add", f"{ADDRESS[name]}/24", "dev", LINK[name])
        sh("ip", "-n", name, "link", "set", LINK[name], "up")


def remove_network() -> None:
    """Remove the namespaces and end all processes in them."""
    for name in (HEAD, FAR):
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        for process in found:
            subprocess.run(["kill", "-9", process], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def inside(name: str, command: list[str], **more: Any) -> subprocess.Popen[str]:
    """Start a process in a namespace. The remote node does not see the head's files of Ray."""
    hide = f"mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && exec {' '.join(map(_quoted, command))}"
    whole = ["ip", "netns", "exec", name, *(command if name == HEAD else ["sh", "-c", hide])]
    return subprocess.Popen(whole, text=True, **more)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def outside(options: argparse.Namespace) -> None:
    """Make the network, start both nodes, and cut the link when the driver requests it."""
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    remove_network()
    make_network()
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        here = f"--node-ip-address={ADDRESS[HEAD]}"
        inside(HEAD, [*RAY, "--head", here, f"--port={PORT}", "--include-dashboard=false"], **quiet)
        time.sleep(options.head_seconds)
        inside(FAR, [*RAY, f"--address={ADDRESS[HEAD]}:{PORT}", f"--node-ip-address={ADDRESS[FAR]}"], **quiet)
        driver = inside(
            HEAD,
            [sys.executable, __file__, "--driver", "--evaluations", str(options.evaluations)],
            env=environment,
            stdout=subprocess.PIPE,
        )
        assert driver.stdout is not None
        for line in driver.stdout:
            if line.startswith("cut"):
                print("the link goes down", file=sys.stderr, flush=True)
                sh("ip", "-n", HEAD, "link", "set", LINK[HEAD], "down")
                threading.Timer(options.cut_seconds, up).start()
            else:
                print(line, end="", flush=True)
        if driver.wait() != 0:
            raise SystemExit("the driver failed")
    finally:
        remove_network()


def up() -> None:
    """Bring the link up again, unless the run has ended."""
    print("the link comes up", file=sys.stderr, flush=True)
    subprocess.run(["ip", "-n", HEAD, "link", "set", LINK[HEAD], "up"], check=False)


def driver(count: int) -> None:
    """Run the driver in the head's namespace: queue, start workers, wait, count."""
    import ray

    with Server() as server, open_store(where := server.new_database()) as store:
        rows = queue(store, count)
        run = rows[0].run_id
        fleet = RayFleet(store, where, address=f"{ADDRESS[HEAD]}:{PORT}", terms=Terms(LEASE_SECONDS, idle_seconds=120))
        _until_both_nodes(ray)
        start = time.monotonic()
        fleet.start(run)
        cut, held = 0.0, dict[int, str | None]()
        while any(store.evaluation(row.id).state in (State.QUEUED, State.LEASED) for row in rows):
            fleet.tend()
            leased = store.evaluations(run, state=State.LEASED)
            if not cut and len(leased) == 2 and len(store.workers()) == 2:
                print("cut", flush=True)
                cut, held = time.monotonic(), {row.id: row.owner for row in leased}
            time.sleep(0.2)
        seconds = time.monotonic() - start
        ended = [store.evaluation(row.id) for row in rows]
        time.sleep(10)  # the worker that was cut off may still send its result
        finished = Counter(event.evaluation_id for event in store.events(limit=100_000) if event.kind == "finished")
        kinds = Counter(event.kind for event in store.events(limit=100_000))
        after = [store.evaluation(row.id) for row in rows]
        fleet.close()
    with Supervisor() as supervisor:
        right = supervisor.evaluate(asked(0)).status.value
    result = {
        "evaluations": count,
        "nodes": 2,
        "cut_after_seconds": round(cut - start, 1),
        "seconds": round(seconds, 1),
        "held_at_the_cut": len(held),
        "judged_again": sum(row.attempts > 1 for row in ended),
        "lost": sum(row.state is not State.DONE for row in ended),
        "doubled": sum(number > 1 for number in finished.values()),
        "changed_later": sum(one != other for one, other in zip(ended, after, strict=True)),
        "wrong": sum(row.status != right for row in ended),
        "fenced": kinds["fenced"],
        "given_back": kinds["given_back"],
    }
    print(json.dumps(result))


def _until_both_nodes(ray: Any) -> None:
    """Wait until both nodes have joined."""
    ray.init(address=f"{ADDRESS[HEAD]}:{PORT}", log_to_driver=False, logging_level="ERROR")
    deadline = time.monotonic() + 120
    while sum(node["Alive"] for node in ray.nodes()) < 2:
        if time.monotonic() > deadline:
            raise SystemExit("the remote node did not join")
        time.sleep(0.5)
    ray.shutdown()


def main() -> None:
    """Run one side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--cut-seconds", type=float, default=40.0)
    parser.add_argument("--head-seconds", type=float, default=15.0, help="that the head has to start")
    parser.add_argument("--driver", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        driver(options.evaluations)
    else:
        outside(options)


if __name__ == "__main__":
    main()
