"""Install commands name the distribution `weft-gpu` and its extras; one function makes those of messages."""

import re
import tomllib
from pathlib import Path

import weft
from weft.core.distribution import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WEFT = re.compile(r"pip install\s+(?:-\S+\s+)*['\"]?(weft[\w.-]*)(?:\[([\w,]+)\])?")


def test_the_name_is_the_projects() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "weft-gpu"
    assert install_command("triton", "torch") == "pip install 'weft-gpu[triton,torch]'"


def test_every_command_that_installs_weft_names_it_and_its_extras() -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), ROOT / "action.yml"]
    assert len(files) > 300
    found = [(file.name, *match) for file in files for match in WEFT.findall(file.read_text())]
    assert len(found) > 10
    extras = PROJECT["optional-dependencies"].keys()
    wrong = [row for row in found if row[1] != DISTRIBUTION or not set(filter(None, row[2].split(","))) <= extras]
    assert wrong == []


def test_messages_about_optional_packages_are_made_by_one_function() -> None:
    """Only packages that Weft always needs are named by `pip install` in a message."""
    allowed = {"core/distribution.py", "cli/installed.py", "toolchain/cuda_headers.py", "toolchain/nvrtc.py"}
    source = Path(weft.__file__).parent
    found = {str(file.relative_to(source)) for file in source.rglob("*.py") if "pip install" in file.read_text()}
    assert found == allowed


def test_every_extra_that_a_message_names_exists() -> None:
    source = Path(weft.__file__).parent
    calls = [
        call for file in source.rglob("*.py") for call in re.findall(r"install_command\(([^)]*)\)", file.read_text())
    ]
    named = {extra for call in calls for extra in re.findall(r"['\"]([\w]+)['\"]", call)}
    assert {"triton", "torch", "sass", "cuda", "figures", "llm", "mcp", "postgres", "fleet"} == named
    assert named <= PROJECT["optional-dependencies"].keys()
