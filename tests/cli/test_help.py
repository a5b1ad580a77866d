"""`weft --help` lists every verb in one group, complete; every verb's help opens with commands that parse."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.cli.pseudo_terminal import on_terminal
from tests.cli.pseudo_terminal import weft as command_line
from weft.cli import main as cli
from weft.cli.verbs import GROUPS, VERBS

HEADINGS = ["Judge", "Debug", "Measure", "Search", "Share", "Set up", "Less common"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def listed(text: str) -> dict[str, dict[str, str]]:
    """Heading → verb → its line, as `weft --help` prints them. A line that is continued fails here."""
    groups: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        row = re.fullmatch(r"  ([a-z][a-z-]*) +(\S.*)", line)
        if line.endswith(":") and not line.startswith(" "):
            group = groups.setdefault(line[:-1], {})
        elif row is not None and groups:
            group[row[1]] = row[2]
    return {heading: group for heading, group in groups.items() if heading != "Options"}


def test_every_verb_is_in_exactly_one_group() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names)) and names == list(VERBS)
    assert list(GROUPS) == HEADINGS


def test_the_help_prints_groups_and_complete_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {heading: {name: verb.help for name, verb in group.items()} for heading, group in GROUPS.items()}
    assert cli.main(["--help"]) == 0
    assert listed(capsys.readouterr().out) == expected
    code, shown = on_terminal(command_line("--help"), columns=80)
    assert code == 0 and listed(CONTROL.sub("", shown)) == expected


@pytest.mark.parametrize("group", ["evolve", "fleet", "journal", "runs"])
def test_summaries_of_subcommands_are_complete(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([group, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "..." not in text.partition("Commands:")[2]
    for command in cli._load(group, VERBS[group]).commands.values():
        assert " ".join(command.help.split("\n\n")[0].split()) in text


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_opens_with_its_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = VERBS[verb].examples
    assert 1 <= len(examples) <= 2 and all(example.split()[:2] == ["weft", verb] for example in examples)
    assert cli.main([verb, "--help"]) == 0
    usage, blank, first, *rest = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"Usage: weft {verb}") and blank == ""
    assert first == f"  Example:  {examples[0]}"
    assert [line.strip() for line in rest[: len(examples)]] == [*examples[1:], ""]
    assert rest[len(examples)].strip()  # then what the verb does


@pytest.mark.parametrize("example", [example for verb in VERBS.values() for example in verb.examples])
def test_every_example_parses(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kernel.cu", "extension.cu", "script.py", "kernel.weft"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    _, verb, *words = shlex.split(example)
    parse(cli._load(verb, VERBS[verb]), verb, words)


def parse(command: Any, name: str, words: list[str]) -> None:
    """Read the words as the command does, down to its sub-commands; run nothing. An unknown option raises."""
    context = command.make_context(name, list(words))
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if hasattr(command, "resolve_command") and rest:
        subname, subcommand, rest = command.resolve_command(context, rest)
        parse(subcommand, subname, rest)


def test_an_example_with_an_unknown_option_does_not_parse() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(cli._load("check", VERBS["check"]), "check", ["kernel.cu", "--shapse", "small"])


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"weft {weft.__version__}\n" and re.fullmatch(r"weft \d+\.\d+\.\d+\S*\n", shown)
