import multiprocessing
from pathlib import Path

import pytest

from weft.core.errors import UsageError
from weft.toolchain import Cache, cache_key


def test_a_value_comes_back_and_another_key_misses() -> None:
    store = Cache("object")
    key = cache_key(["source", b"\0flags"])
    assert store.get(key) is None
    store.put(key, b"payload\nwith a line feed\0")
    assert store.get(key) == b"payload\nwith a line feed\0"
    assert store.get(cache_key(["source"])) is None
    assert Cache("other").get(key) is None


def test_the_key_depends_on_where_a_part_ends() -> None:
    assert cache_key(["ab", "c"]) != cache_key(["a", "bc"])
    assert cache_key(["a"]) != cache_key(["a", ""])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_a_damaged_file_is_a_miss_and_can_be_replaced(damage: str) -> None:
    store = Cache("object")
    key = cache_key(["k"])
    store.put(key, b"0123456789" * 100)
    path = store.path(key)
    blob = path.read_bytes()
    path.write_bytes(
        {
            "truncated": blob[:-1],
            "flipped": blob[:-1] + bytes([blob[-1] ^ 1]),
            "empty": b"",
            "foreign": b"not a cache file\n" + blob,
        }[damage]
    )
    assert store.get(key) is None
    store.put(key, b"again")
    assert store.get(key) == b"again"


def test_a_file_under_another_key_is_a_miss() -> None:
    store = Cache("object")
    store.put(cache_key(["a"]), b"of a")
    wrong = store.path(cache_key(["b"]))
    wrong.parent.mkdir(parents=True, exist_ok=True)
    wrong.write_bytes(store.path(cache_key(["a"])).read_bytes())
    assert store.get(cache_key(["b"])) is None


def _write(root: Path, number: int) -> None:
    store = Cache("object", root=root)
    key = cache_key(["shared"])
    value = bytes([number]) * 200_000
    for _ in range(20):
        store.put(key, value)
        read = store.get(key)
        assert read is not None and len(set(read)) == 1 and len(read) == 200_000


def test_concurrent_processes_never_see_half_a_value(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith(".tmp")] == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = Cache("object", root=blocked)
    store.put(cache_key(["k"]), b"v")
    assert store.get(cache_key(["k"])) is None


def test_keys_and_kinds_are_checked() -> None:
    with pytest.raises(UsageError):
        Cache("../up")
    with pytest.raises(UsageError):
        Cache("object").get("../../etc/passwd")
