"""`weft doctor`: versions from metadata, the machine from its files, and one kernel that really runs."""

import json
import sqlite3
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from weft.cli import host_state, installed
from weft.cli.main import main
from weft.core.distribution import DISTRIBUTION
from weft.core.errors import CompileError
from weft.store.store import open_store
from weft.supervise.isolation_probe import probe_here


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, object]:
    assert main(["doctor", "--json", *args]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_versions_are_those_of_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys)
    rows = {row["name"]: row["version"] for row in found["packages"]}  # type: ignore[attr-defined]
    assert len(rows) > 20 and rows == {name: version_of(name) for name in rows}
    assert found["problems"] == []


def version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def test_what_weft_declares_has_a_row_and_its_own_range() -> None:
    """Every requirement, optional ones with their extra; developers' tools have no row."""
    rows = {installed._plain(row.name): row for row in installed.packages()}
    declared = [Requirement(text) for text in requires(DISTRIBUTION) or []]
    base = {installed._plain(each.name) for each in declared if each.marker is None}
    assert {name for name, row in rows.items() if row.required} == base
    for each in declared:
        row = rows.get(installed._plain(each.name))
        if row is not None and row.required:
            assert Requirement(row.install.removeprefix("pip install '").removesuffix("'")).specifier == each.specifier
    for name, (extra, _) in installed.OPTIONAL.items():
        assert rows[name].install == f"pip install 'weft-gpu[{extra}]'"
        assert any(installed._plain(each.name) == name and _is_in(each, extra) for each in declared), name


def _is_in(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def test_packages_are_listed_where_weft_is_not_installed_by_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {name: place for name, place in installed._folders().items() if name not in ("llvmlite", DISTRIBUTION)}
    monkeypatch.setattr(installed, "_folders", lambda: here)
    (row,) = [row for row in installed.packages() if row.name == "llvmlite"]
    assert row.missing and row.install == "pip install 'llvmlite'"


def test_what_is_missing_is_named_with_the_line_that_adds_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {name: place for name, place in installed._folders().items() if name not in ("triton", "llvmlite")}
    monkeypatch.setattr(installed, "_folders", lambda: here)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "to add triton: pip install 'weft-gpu[triton]'" in out
    assert "llvmlite is missing: pip install 'llvmlite>=" in out
    assert out.splitlines()[-1].startswith("problems: 1; see above")


def test_try_runs_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--try")
    assert found["try"]["problem"] == "" and found["try"]["elements"] == 1000  # type: ignore[index]
    assert found["isolation"]["level"] == probe_here().level  # type: ignore[index]


def test_the_isolation_that_the_kernel_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.supervise.isolation_filter.landlock_version", lambda: 0)
    assert not any(host_state.isolation(tmp_path).values())
    monkeypatch.setattr("weft.supervise.isolation_filter.landlock_version", lambda: 5)
    for file, text in {"kernel/seccomp/actions_avail": "kill\n", "user/max_user_namespaces": "63000\n"}.items():
        (tmp_path / "proc/sys" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/sys" / file).write_text(text)
    assert all(host_state.isolation(tmp_path).values())
    (tmp_path / "proc/sys/user/max_user_namespaces").write_text("0\n")
    assert host_state.isolation(tmp_path)["user namespaces"] is False


def test_try_that_fails_is_a_problem(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise CompileError("NVRTC cannot be loaded")

    monkeypatch.setattr("weft.engines.kernel_file.load", refuse)
    found = report(capsys, "--try", code=1)
    assert "NVRTC cannot be loaded" in found["problems"][0]  # type: ignore[index]


def test_the_store_is_read_and_not_created(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys)["store"]["exists"] is False  # type: ignore[index]
    assert not (places / "weft.db").exists()
    with open_store(places / "weft.db") as store:
        store.start_run("evolve", task="sdpa")
    found = host_state.store()
    with sqlite3.connect(places / "weft.db") as connection:
        (schema,) = connection.execute("SELECT version FROM schema_version").fetchone()
    assert (found.exists, found.schema, found.runs, found.problem) == (True, schema, 1, "")


def test_a_file_that_is_no_store_and_a_server(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (places / "weft.db").write_text("not a database, but long enough to be taken for one" * 100)
    assert "not a database" in host_state.store().problem
    monkeypatch.setenv("WEFT_STORE", "postgresql+psycopg://me:secret@db.example/weft")
    assert host_state.store().where == "postgresql+psycopg://me:…@db.example/weft"


def test_a_gpu_is_seen_by_the_drivers_files(tmp_path: Path) -> None:
    assert host_state.gpu(tmp_path) == host_state.Gpu(False, (), "")
    card = tmp_path / "proc/driver/nvidia/gpus/0000:00:04.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA L4\nIRQ:   \t\t 42\n")
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64  580.65\nGCC version: 12\n")
    found = host_state.gpu(tmp_path)
    assert found.present and found.names == ("NVIDIA L4",) and "580.65" in found.driver


def test_the_cache_is_counted_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    assert host_state.cache() == host_state.Folder(str(tmp_path / "cache"), 0, 0, True)
    folder = tmp_path / "cache" / "object" / "ab"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / str(number)).write_bytes(bytes(100))
    assert host_state.cache() == host_state.Folder(str(tmp_path / "cache"), 3, 300, True)
    monkeypatch.setattr(host_state, "MOST_FILES", 2)
    assert host_state.cache() == host_state.Folder(str(tmp_path / "cache"), 2, 200, False)
