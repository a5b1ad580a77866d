"""The key of a request in the verdict cache: everything that the result depends on."""

import dataclasses
import functools
import hashlib
import json
from pathlib import Path

import llvmlite
import numpy as np

import weft
from weft.store.keys import content_digest, verdict_key
from weft.tasks.registry import TASKS
from weft.toolchain import cuda_headers, nvrtc

from .records import Request

DECIDES = (
    "attention", "core", "diagnose", "engines", "judge", "kernels", "model", "probes", "profile", "ptx", "supervise",
    "tasks", "toolchain", "vm",
)  # fmt: skip
"""Packages on whose source a verdict depends."""


@functools.cache
def judge_version() -> str:
    """Return a digest of the judge's source and of the libraries it computes with."""
    digest = hashlib.sha256(f"{np.__version__} {llvmlite.__version__}".encode())
    root = Path(weft.__file__).parent
    for package in DECIDES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def request_key(request: Request) -> str:
    """Return the key: the same for the same candidate and the same judge, in every process."""
    source = request.source
    policy = {
        "rung": request.rung,
        "choice": dataclasses.asdict(request.choice),
        "score": dataclasses.asdict(request.score) if request.score is not None else None,
        "clock_ghz": request.clock_ghz,
        "debug_build": request.debug_build,
        "diagnose": request.diagnose,
        "max_steps": request.max_steps,
        "isolation": request.isolation,
        "within_limits": request.within_limits,
    }
    task = request.task
    if task not in TASKS:
        task = content_digest(Path(task).read_bytes())
    return verdict_key(
        source=f"{source.language}\n{source.text}",
        launch=source.launch,
        compiler=f"{nvrtc.version()} {cuda_headers.fingerprint()}",
        flags=json.dumps(dict(source.defines), sort_keys=True),
        arch=request.chip,
        task=task,
        judge=judge_version(),
        policy=json.dumps(policy, sort_keys=True),
    )
