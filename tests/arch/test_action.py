"""action.yml and .pre-commit-hooks.yaml: valid by the public schemas, and their shell parts executed.

What GitHub itself does (the actions named by `uses`, the expressions of `if`, the upload of SARIF) is not run here.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, blocks

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
PAGE = DOCS / "tutorials" / "ci_without_a_gpu.md"
WORKFLOWS = [
    block.body
    for page in (PAGE, DOCS / "howto" / "pytest.md")
    for block in blocks(page.read_text())
    if block.kind == "yaml" and "jobs:" in block.body
]

RACY = """\
// weft: sizes   B=1 HQ=1 SQ=4 HKV=1 SKV=4 D=32
// weft: in      q : f16[B, HQ, SQ, D]
// weft: in      k, v : f16[B, HKV, SKV, D]
// weft: out     o : f16[B, HQ, SQ, D]
// weft: launch  racy(q, o, B * HQ * SQ * D) grid(1) block(64)
#include <cuda_fp16.h>
__global__ void racy(const __half* q, __half* o, int n) {
    __shared__ __half first[32];
    if (threadIdx.x < 32) first[threadIdx.x] = q[0];
    const __half mine = first[threadIdx.x % 32];
    for (int i = threadIdx.x; i < n; i += 64) o[i] = mine;
}
"""
QUICK = "--shapes split_4 --regimes unit_normal --masks none --seeds 1"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A project with one wrong kernel, as it is after actions/checkout."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "racy.cu").write_text(RACY)
    (tmp_path / "temp").mkdir()
    return tmp_path


def run_step(name: str, workspace: Path, path: Path | None = None, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Executes the shell part of a step as a runner does; `path` comes first on the PATH."""
    step = STEPS[name]
    assert step["shell"] == "bash"
    given = {key: row["default"] for key, row in ACTION["inputs"].items()}
    given |= {key.replace("_", "-"): value for key, value in inputs.items()}
    folders = [str(path)] if path else []
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "GITHUB", "WEFT_STORE"))},
        **{key: expanded(str(value), given, workspace) for key, value in step["env"].items() if key != "WEFT_CACHE"},
        "PATH": os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_OUTPUT": str(workspace / "temp" / "output"),
        "GITHUB_STEP_SUMMARY": str(workspace / "temp" / "summary"),
        "RUNNER_TEMP": str(workspace / "temp"),
        "WEFT_PROGRESS": "0",
    }
    script = workspace / "temp" / "step.sh"
    script.write_text(step["run"])
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
    return subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300)


def expanded(text: str, inputs: dict[str, str], workspace: Path) -> str:
    """Returns a value of `env` as GitHub would give it: the three expressions that this action uses."""

    def value(match: re.Match[str]) -> str:
        inner = match[1].strip()
        if inner == "runner.temp":
            return str(workspace / "temp")
        name, _, other = inner.removeprefix("inputs.").partition(" != ")
        return inputs[name] if not other else str(inputs[name] != other.strip("'")).lower()

    return re.sub(r"\$\{\{(.+?)\}\}", value, text)


def outputs(workspace: Path) -> dict[str, str]:
    rows = (workspace / "temp" / "output").read_text().splitlines()
    return dict(row.split("=", 1) for row in rows)


def test_weft_check_annotates_and_writes_sarif(workspace: Path) -> None:
    done = run_step("weft check", workspace, files="kernels/*.cu", options=QUICK)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("::error file=kernels/racy.cu,line=10,") and "title=R102 " in done.stdout
    assert outputs(workspace) == {"status": "1", "sarif": "weft.sarif"}
    (run,) = json.loads((workspace / "weft.sarif").read_text())["runs"]
    (location,) = run["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "kernels/racy.cu"
    summary = (workspace / "temp" / "summary").read_text()
    assert summary.startswith("### weft check\n```\n") and "ERROR SUMMARY: 1 error" in summary and "::" not in summary


def test_what_is_no_verdict_is_annotated(workspace: Path) -> None:
    done = run_step("weft check", workspace, files="kernels/missing.cu", options=QUICK)
    assert done.returncode == 2 and "::error title=weft check::exit code 2: " in done.stdout
    assert outputs(workspace) == {"status": "2"}
    done = run_step("weft check", workspace, files="kernels/*.ptx")
    assert done.returncode == 2 and "no file matches: kernels/*.ptx" in done.stdout


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder with a `python` and a `weft` that print their arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python", "weft"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("inputs", "packages"),
    [
        ({}, "weft-gpu[triton,torch]"),
        ({"extras": ""}, "weft-gpu"),
        ({"package": "weft-gpu==0.1.0", "pytest": "tests"}, "weft-gpu[triton,torch]==0.1.0 pytest"),
        ({"package": "./weft", "extras": "sass"}, "./weft[sass]"),
    ],
)
def test_what_is_installed(inputs: dict[str, str], packages: str, workspace: Path, stand_in: Path) -> None:
    done = run_step("Install Weft", workspace, stand_in, **inputs)
    assert done.stdout.splitlines() == [f"python -m pip install {packages}", "weft --version"], done.stderr


def test_pytest_gets_its_arguments(workspace: Path, stand_in: Path) -> None:
    done = run_step("pytest --weft", workspace, stand_in, pytest="tests -q -k 'not slow'")
    assert done.returncode == 0 and done.stdout.startswith("python -m pytest --weft tests -q -k")


def validate(schema: str, *files: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_valid() -> None:
    validate("vendor.github-actions", ROOT / "action.yml")


def test_workflows_of_the_pages_are_valid_and_their_inputs_exist(tmp_path: Path) -> None:
    assert len(WORKFLOWS) >= 2
    files = []
    for number, text in enumerate(WORKFLOWS):
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(text)
        for job in yaml.safe_load(text)["jobs"].values():
            for step in job["steps"]:
                if "weft" in step.get("uses", ""):
                    assert step["with"].keys() <= ACTION["inputs"].keys()
    validate("vendor.github-workflows", *files)
    assert any("OWNER/weft@" in text for text in WORKFLOWS)


def test_expressions_name_what_exists_and_none_is_in_a_script() -> None:
    text = (ROOT / "action.yml").read_text()
    ids = {step["id"] for step in STEPS.values() if "id" in step}
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == ACTION["inputs"].keys()
    assert set(re.findall(r"steps\.(\w+)\.", text)) <= ids
    assert not any("${{" in step.get("run", "") for step in STEPS.values()), "an input in a script is code injection"
    assert all(f"| `{name}` |" in PAGE.read_text() for name in ACTION["inputs"])


def test_the_hook_is_valid_and_runs(workspace: Path) -> None:
    tool = [sys.executable, "-m", "pre_commit"]
    subprocess.run([*tool, "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")], check=True)
    (shown,) = [block.body for block in blocks(PAGE.read_text()) if "weft-check" in block.body]
    (workspace / "config.yaml").write_text(shown)
    subprocess.run([*tool, "validate-config", str(workspace / "config.yaml")], check=True)
    assert yaml.safe_load(shown)["repos"][0]["hooks"][0]["id"] == HOOK["id"]
    names = ("a.cu", "b.ptx", "c.cuh", "cu.py")
    assert [name for name in names if re.search(HOOK["files"], name)] == ["a.cu", "b.ptx"]
    words = [*shlex.split(HOOK["entry"]), *HOOK["args"], "kernels/racy.cu"]
    done = subprocess.run([sys.executable, "-m", *words], cwd=workspace, capture_output=True, text=True)
    assert done.returncode == 1 and "R102" in done.stdout, done.stdout + done.stderr
