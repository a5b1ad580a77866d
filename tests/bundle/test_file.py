"""The file of a bundle: the same bytes for the same bundle, read back completely, with every field checked."""

import contextlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.bundle.file import ANSWER, MANIFEST, MOST_BYTES, pack, read, unpack
from weft.bundle.records import Answer, BrokenBundle, Bundle
from weft.core.status import Status
from weft.judge.select import Choice
from weft.judge.verdict import Sample, Verdict
from weft.supervise.records import CandidateSource, ScoreOn
from weft.tasks.task import Workload

FAILED = Verdict(
    Workload(SHAPES["small"], "f16", "none", "unit_normal", 0),
    Status.INCORRECT_NUMERICAL,
    "tight: 1.16 beyond 0.00146",
    samples=(Sample((0, 0, 14, 15), 3.75, 0.375),),
)
ANSWERED = Answer(
    Status.INCORRECT_NUMERICAL, FAILED.message, 1, 2, FAILED, "ab" * 32,
    {"small f16 none unit_normal seed 0": {"o": "01" * 32}}, (10.0, 20.5),
)  # fmt: skip
WHOLE = Bundle(
    name="mine.cu", source=CandidateSource("// weft: sizes N=1\n__global__ void f() {}\n", defines={"WARPS": "4"}),
    task="sdpa", task_text="", choice=Choice(("small", "ragged"), ("unit_normal",), ("none",), ("f16",), (), (0, 7)),
    chip="l4", rung=None, score=ScoreOn(), debug_build=True, max_steps=1000, environment={"weft": "0.1.0"},
    origin={"run": "1"}, answer=ANSWERED,
)  # fmt: skip
PTX = replace(
    WHOLE, source=CandidateSource(".version 9.0\n", "ptx", "// weft: sizes N=2\n"), task="my.py", task_text="TASK = 1\n"
)


@pytest.mark.parametrize("bundle", [WHOLE, PTX])
def test_everything_comes_back_and_the_bytes_are_always_the_same(bundle: Bundle) -> None:
    content = pack(bundle)
    assert unpack(content) == bundle
    assert pack(unpack(content)) == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {row.date_time for row in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        manifest = json.loads(archive.read(MANIFEST))
    assert manifest["launch_lines"] == [(bundle.source.launch or bundle.source.text).splitlines()[0]]


def test_another_order_of_defines_gives_the_same_bytes() -> None:
    one = replace(WHOLE, source=replace(WHOLE.source, defines={"A": "1", "B": "2"}))
    other = replace(WHOLE, source=replace(WHOLE.source, defines={"B": "2", "A": "1"}))
    assert pack(one) == pack(other)


def rewritten(change: dict[str, bytes | None], *, content: bytes | None = None) -> bytes:
    """Return the archive with members replaced, added or (None) removed."""
    with zipfile.ZipFile(io.BytesIO(content or pack(WHOLE))) as archive:
        members = {row.filename: archive.read(row) for row in archive.infolist()}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in {**members, **change}.items():
            if data is not None:
                archive.writestr(name, data)
    return written.getvalue()


def manifest_with(**values: object) -> bytes:
    with zipfile.ZipFile(io.BytesIO(pack(WHOLE))) as archive:
        return json.dumps({**json.loads(archive.read(MANIFEST)), **values}).encode()


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/passwd", "kernel.cu/", "a/../../b", "weft.py", "C:\\x", "task.pyc"]
)
def test_a_member_with_any_other_name_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BrokenBundle, match="which a bundle does not have"):
        unpack(rewritten({name: b"x"}))
    assert list(tmp_path.iterdir()) == []


def test_a_member_twice_is_refused() -> None:
    written = io.BytesIO(pack(WHOLE))
    with zipfile.ZipFile(written, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("kernel.cu", "other")
    with pytest.raises(BrokenBundle, match="or has only once"):
        unpack(written.getvalue())


def test_a_bomb_is_not_unpacked() -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kernel.cu", bytes(MOST_BYTES + 1))
    assert len(written.getvalue()) < MOST_BYTES / 100
    with pytest.raises(BrokenBundle, match="unpacks to more"):
        unpack(written.getvalue())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({MANIFEST: None}, "manifest.json is missing"),
        ({ANSWER: None}, "answer.json is missing"),
        ({MANIFEST: b"{"}, "not JSON"),
        ({MANIFEST: b"[" * 100_000}, "not JSON"),
        ({MANIFEST: b"[]"}, "not a JSON object"),
        ({MANIFEST: b"\xff\xfe"}, "not text"),
        ({"kernel.cu": b"changed"}, "not those of its manifest"),
        ({"kernel.cu": None}, "not those of its manifest"),
        ({"task.py": b"import os"}, "not those of its manifest"),
        ({MANIFEST: manifest_with(format=99)}, "use a newer version"),
        ({MANIFEST: manifest_with(chip="l5")}, "has no GPU 'l5'"),
        ({MANIFEST: manifest_with(rung="../scalar")}, "has no rung"),
        ({MANIFEST: manifest_with(defines=["A"])}, "not an object"),
        ({MANIFEST: manifest_with(defines={"A": 1})}, "not text"),
        ({MANIFEST: manifest_with(max_steps=-1)}, "not a count"),
        ({MANIFEST: manifest_with(max_steps=True)}, "not a count"),
        ({MANIFEST: manifest_with(debug_build=1)}, "neither true nor false"),
        ({MANIFEST: manifest_with(choice={"shapes": ["no such"]})}, "damaged"),
        ({MANIFEST: manifest_with(score={})}, "damaged"),
    ],
)
def test_a_damaged_bundle_is_refused_with_the_reason(change: dict[str, bytes | None], why: str) -> None:
    with pytest.raises(BrokenBundle, match=why):
        unpack(rewritten(change))


def test_no_prefix_of_a_bundle_is_a_bundle(tmp_path: Path) -> None:
    content = pack(WHOLE)
    for length in range(0, len(content), 97):
        with pytest.raises(BrokenBundle):
            unpack(content[:length])
    file = tmp_path / "x.weft"
    with pytest.raises(BrokenBundle, match="cannot read"):
        read(file)
    file.write_text("not a zip")
    with pytest.raises(BrokenBundle, match=r"x\.weft: not a bundle"):
        read(file)


def test_no_flipped_byte_changes_what_is_read() -> None:
    """It is refused, or it is in a part of the zip that has no meaning."""
    content = bytearray(pack(WHOLE))
    for place in range(0, len(content), 11):
        content[place] ^= 0x10
        with contextlib.suppress(BrokenBundle):
            assert unpack(bytes(content)) == WHOLE
        content[place] ^= 0x10
