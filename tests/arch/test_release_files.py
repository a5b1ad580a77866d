"""Files of a release agree with each other: the lock, the notices, the container, the changelog."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import weft

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]


def locked() -> dict[str, Version]:
    rows = [line.split("==") for line in lines("requirements-lock.txt")]
    assert all(len(row) == 2 for row in rows)  # exact versions, nothing else
    return {canonicalize_name(name): Version(version) for name, version in rows}


def test_the_lock_is_one_version_per_package_in_order() -> None:
    names = [line.split("==")[0] for line in lines("requirements-lock.txt")]
    assert names == sorted(names) and len(set(map(canonicalize_name, names))) == len(names) > 50


def test_the_lock_satisfies_what_developers_and_weft_ask_for() -> None:
    """For a new requirement run scripts/lock, which writes the lock again."""
    versions = locked()
    asked = [Requirement(line) for line in (*lines("requirements-dev.txt"), *PROJECT["dependencies"])]
    here = [each for each in asked if each.marker is None or each.marker.evaluate()]
    wrong = [
        str(each)
        for each in here
        if canonicalize_name(each.name) not in versions
        or not each.specifier.contains(versions[canonicalize_name(each.name)], prereleases=True)
    ]
    assert len(here) > 20 and wrong == []


@pytest.mark.parametrize("script", [".ci/run", "scripts/install"])
def test_what_is_installed_is_locked(script: str) -> None:
    """Every call of pip, also of the wheel, is a line with the lock as constraint; another has an old Triton."""
    text = "\n".join(line.partition(" #")[0] for line in (ROOT / script).read_text().splitlines() if line[:1] != "#")
    calls = [line for line in text.splitlines() if "pip install" in line]
    assert len(calls) == 2 and "-c requirements-lock.txt" in calls[0]
    assert "--no-deps" in calls[1] and "-r requirements-older-triton.txt" in calls[1]
    assert "uv " not in text and "pip3 " not in text and "setup.py" not in text


def test_what_is_installed_without_its_dependencies_has_exact_versions() -> None:
    """The lock does not contain packages that are not resolved with the others."""
    for name in ("headers", "packages", "clients", "older-triton"):
        for row in map(Requirement, lines(f"requirements-{name}.txt")):
            assert [each.operator for each in row.specifier] == ["=="], f"{name}: {row}"
            assert (canonicalize_name(row.name) in locked()) == (name == "older-triton"), f"{row} in {name}"


def test_the_phases_of_ci_print_their_time_and_pytest_prints_last() -> None:
    lines_of_ci = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines_of_ci if line.startswith('phase "')][-1] == 'phase "tests"'
    assert lines_of_ci[-1] == "scripts/test"
    work = "\n".join(lines_of_ci[lines_of_ci.index("phase() {") :]).partition("\n}\n")[0]
    program = f'phase_name=""\n{work}\n}}\nphase "one"; SECONDS=7; phase "two"'
    shown = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["== one ...", "== one: 7 s", "== two ..."]


def test_every_dependency_has_its_notice() -> None:
    needed, _, extras = (ROOT / "THIRD_PARTY.md").read_text().partition("## With every extra")
    rows = {canonicalize_name(name) for name in re.findall(r"^\| *([\w.-]+) *\|", needed, re.MULTILINE)}
    assert {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]} <= rows
    assert "| torch " in extras and "UNKNOWN" not in needed
    assert re.search(r"on 20\d\d-\d\d-\d\d", needed)


def test_files_that_the_container_copies_exist_and_are_not_ignored() -> None:
    ignored = lines(".dockerignore")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for row in copied for name in row.split()]
    assert {"pyproject.toml", "src", "docs/findings", "requirements-lock.txt"} <= set(names)
    for name in names:
        assert (ROOT / name).exists() and f"!{name}" in ignored


def test_the_changelog_begins_with_this_version() -> None:
    (first, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == weft.__version__


def test_the_security_page_names_pages_that_are_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / "SECURITY.md").read_text()):
        assert (ROOT / link).is_file(), link
