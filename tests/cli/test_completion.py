"""TAB in a real bash; options read from the source agree with the loaded verbs."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from weft.attention.regimes import REGIMES
from weft.cli import complete
from weft.cli import main as cli
from weft.cli.complete import read_parameters
from weft.core.chips import chips
from weft.kernels.ladder import ENCODINGS, MASKS
from weft.tasks.registry import TASKS

ROOT = Path(__file__).parents[2]
BASH = """
PATH="$1:$PATH"
eval "$(weft completion bash)"
while IFS= read -r line; do
    COMP_WORDS=($line)
    [[ "$line" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _weft_completion weft
    printf '%s|' "${COMPREPLY[@]}"
    echo
done
"""
"""Loads the script as a user does, and calls the registered function with words as readline splits them."""


def tab(folder: Path, *lines: str) -> list[list[str]]:
    """Return the completions of bash after each line."""
    places = folder / "bin"
    places.mkdir(exist_ok=True)
    weft = places / "weft"
    weft.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m weft "$@"\n')
    weft.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", str(places)],
        input="".join(f"{line}\n" for line in lines),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [[word for word in line.split("|") if word] for line in done.stdout.splitlines()]


def test_bash(tmp_path: Path) -> None:
    (tmp_path / "wmma_mine.cu").touch()
    (tmp_path / "notes.txt").touch()
    verbs, options, kernels, listed, equals, code, gpu = tab(
        tmp_path,
        "weft che",
        "weft check --sha",
        "weft check wm",
        "weft check wmma --shapes mission,sma",
        "weft check wmma --regimes = sorted",
        "weft explain R10",
        "weft profile --gpu l",
    )
    assert verbs == ["check"]
    assert options == ["--shapes"]
    assert kernels == ["wmma_qk", "wmma", "wmma_mine.cu"]
    assert "mission,small" in listed
    assert equals == ["sorted_keys"]
    assert code == ["R101", "R102", "R103", "R104", "R105", "R106", "R107", "R108", "R109"]
    assert gpu == ["l4", "l40s"]


def test_bash_has_the_registration() -> None:
    shown = subprocess.run(
        ["bash", "-c", 'eval "$("$0" -m weft completion bash)"; complete -p weft', sys.executable],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split()[-1] == "weft" and "_weft_completion" in shown.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_variable_weft_reads(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_WEFT_COMPLETE=complete_" + shell in script
    checker = shutil.which(shell)
    if checker is not None:  # zsh and fish are not on every machine
        subprocess.run([checker, "-n"], input=script, text=True, check=True)


def test_completing_loads_nothing_heavy() -> None:
    program = "import sys; from weft.cli.main import main; main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": "weft check --shapes mi", "COMP_CWORD": "3"},
    )
    assert done.stdout.split() == ["mission"]
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"numpy", "llvmlite", "sqlalchemy", "pydantic", "rich", "torch"}


def test_typer_has_an_upper_bound_because_of_its_private_names() -> None:
    """completion.py uses names that typer may move in any release."""
    rows = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (typer,) = (row for row in map(Requirement, rows) if row.name == "typer")
    locked = dict(line.split("==") for line in (ROOT / "requirements-lock.txt").read_text().split() if "==" in line)
    assert any(each.operator == "<" for each in typer.specifier)
    for version in (metadata.version("typer"), locked["typer"]):
        assert typer.specifier.contains(version), version


def test_private_names_of_typer_are_used_in_one_file() -> None:
    source = ROOT / "src" / "weft"
    users = [path.name for path in source.rglob("*.py") if re.search(r"(from|import) typer\._", path.read_text())]
    assert users == ["completion.py"]


def test_without_private_names_of_typer_everything_except_completion_works() -> None:
    program = """
import typer._completion_classes, typer._completion_shared
del typer._completion_classes.completion_init, typer._completion_shared.install
from weft.cli.main import main
raise SystemExit(main(["list"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "wmma" in done.stdout, done.stderr


def test_names_that_are_spelled_out_are_those_of_their_modules() -> None:
    assert complete.SPELLED_OUT["tasks"] == tuple(TASKS)
    assert complete.SPELLED_OUT["regimes"] == tuple(REGIMES)
    assert complete.SPELLED_OUT["masks"] == MASKS
    assert complete.SPELLED_OUT["encodings"] == ENCODINGS


def test_gpus_and_architectures_are_those_of_the_table() -> None:
    verb = complete.light_verb("run", cli.VERBS["run"].target)
    assert verb is not None
    assert verb.offers(["--gpu"], "") == list(chips())
    assert verb.offers(["--arch"], "sm_8") == ["sm_80", "sm_86", "sm_89"]


LIGHT = [verb for verb, row in cli.VERBS.items() if read_parameters(row.target) is not None]
"""Verbs that are not loaded for completion. The others have sub-commands, or share options."""


def test_common_verbs_are_not_loaded_for_completion() -> None:
    assert {"check", "diagnose", "run", "show", "profile", "certify", "bench", "explain", "bundle", "replay"} <= set(
        LIGHT
    )


@pytest.mark.parametrize("verb", LIGHT)
def test_options_read_from_the_source_are_those_of_the_verb(verb: str) -> None:
    row = cli.VERBS[verb]
    read = read_parameters(row.target)
    assert read is not None
    command = cli._load(verb, row)
    real = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    named = {name for parameter in read for name in parameter.options}
    assert named == {name for name in real if name.startswith("-")} - {"-h", "--help"}
    flags = {parameter.name for parameter in read if not parameter.takes_value}
    assert flags == {p.name for p in command.params if getattr(p, "is_flag", False)} - {"help"}


def test_choices_of_the_table_are_those_of_the_verbs() -> None:
    """Every option of the table belongs to a verb, and all choices that typer has are completed."""
    seen = set()
    for verb, row in cli.VERBS.items():
        for parameter in getattr(cli._load(verb, row), "params", ()):
            for name in (*parameter.opts, parameter.name):
                seen.add(name)
                choices = getattr(getattr(parameter, "type", None), "choices", None)
                if choices and name in complete.VALUES:
                    assert [str(getattr(each, "value", each)) for each in choices] == list(complete.VALUES[name]())
    assert {name for name in complete.VALUES if not re.fullmatch(r"--start|--chip", name)} <= seen
