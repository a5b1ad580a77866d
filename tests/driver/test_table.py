"""The table of entry points, compared with NVIDIA's header as it is installed with the CUDA runtime."""

import ctypes
import re
from importlib.resources import files
from pathlib import Path

import nvidia
import pytest

from weft.driver.properties import attributes
from weft.driver.protocol import _ANSWER, _REQUEST, Kind

SHIM = Path(str(files("weft.driver"))) / "shim"
DRIVER_VERSION = 13000


def rows() -> list[tuple[str, int, str]]:
    text = (SHIM / "names.h").read_text()
    return [(name, int(version), symbol) for name, version, symbol in re.findall(r"ROW\((\w+), (\d+), (\w+)\)", text)]


def missing() -> list[str]:
    return re.findall(r"MISSING\((\w+)\)", (SHIM / "missing.h").read_text())


@pytest.fixture(scope="module")
def documented() -> set[tuple[str, int]]:
    """Name and version of every function type in the header."""
    found: set[tuple[str, int]] = set()
    for folder in nvidia.__path__:
        for header in Path(folder).glob("*/include/cuda*Typedefs.h"):
            if header.name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
                declared = re.findall(r"PFN_(cu\w+?)_v(\d+)(?:_ptsz|_ptds)?\)", header.read_text())
                found |= {(name, int(version)) for name, version in declared}
    assert len(found) > 400
    return found


ONLY_A_MACRO = {("cuGraphInstantiate", 12000)}
"""The header of CUDA 12 gives the name to cuGraphInstantiateWithFlags, and has no function type for it."""


def test_every_row_is_documented(documented: set[tuple[str, int]]) -> None:
    assert {(name, version) for name, version, _ in rows()} - ONLY_A_MACRO <= documented


def test_every_documented_name_has_a_row_or_is_listed_as_missing(documented: set[tuple[str, int]]) -> None:
    known = {name for name, _, _ in rows()} | set(missing())
    assert {name for name, version in documented if version <= DRIVER_VERSION} <= known
    assert known <= {name for name, _ in documented}


def test_no_name_is_there_twice() -> None:
    implemented = {name for name, _, _ in rows()}
    assert not implemented & set(missing())
    assert len(rows()) == len(set(rows())) and len(missing()) == len(set(missing()))


def test_the_library_exports_all_of_them_and_finds_them_by_name(driver_library: Path) -> None:
    library = ctypes.CDLL(str(driver_library / "libcuda.so.1"))
    for symbol in [*(symbol for _, _, symbol in rows()), *missing()]:
        assert getattr(library, symbol)
    found, status = ctypes.c_void_p(), ctypes.c_int()

    def find(name: str, version: int) -> tuple[int, int | None]:
        result = library.cuGetProcAddress_v2(
            name.encode(), ctypes.byref(found), version, ctypes.c_uint64(0), ctypes.byref(status)
        )
        assert result == 0
        return status.value, found.value

    for name, version, symbol in rows():
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        newer = [other for row, other, _ in rows() if row == name and other > version]
        last = min(newer) - 1 if newer else 99999
        assert find(name, version) == find(name, last) == (0, address)
    assert find("cuCtxCreate", 1000) == (2, None)  # before its first version
    assert find("cuThisIsNoFunction", DRIVER_VERSION) == (1, None)


def test_both_sides_have_the_same_structs_and_numbers() -> None:
    header = (SHIM / "shim.h").read_text()
    listed = re.search(r"enum request_kind \{(.*?)\};", header, re.DOTALL)
    assert listed
    names = re.findall(r"(\w+)(?: = 1)?,", listed[1])
    assert names == [kind.name for kind in Kind]
    assert (_REQUEST.size, _ANSWER.size) == (4 + 4 + 8 * 8 + 8, 4 + 4 + 4 * 8 + 8 + 8)


def test_attributes_have_the_numbers_of_the_header() -> None:
    from weft.core.chips import chip

    texts = [header.read_text() for folder in nvidia.__path__ for header in Path(folder).glob("*/include/cuda.h")]
    numbers = {name: int(number) for name, number in re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)\s*=\s*(\d+)", texts[0])}
    shown = attributes(chip("l4"))
    expected = {  # the L4's datasheet and the programming guide's table for 8.9
        "MAX_THREADS_PER_BLOCK": 1024,
        "WARP_SIZE": 32,
        "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 101376,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 102400,
        "MAX_REGISTERS_PER_BLOCK": 65536,
        "MAX_THREADS_PER_MULTIPROCESSOR": 1536,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": 24,
        "MULTIPROCESSOR_COUNT": 58,
        "COMPUTE_CAPABILITY_MAJOR": 8,
        "COMPUTE_CAPABILITY_MINOR": 9,
        "GLOBAL_MEMORY_BUS_WIDTH": 192,
        "MAX_GRID_DIM_X": 2**31 - 1,
        "MAX_BLOCK_DIM_Z": 64,
        "UNIFIED_ADDRESSING": 1,
        "MANAGED_MEMORY": 1,
        "MEMORY_POOLS_SUPPORTED": 1,
        "COOPERATIVE_LAUNCH": 1,
        "CLUSTER_LAUNCH": 0,
    }
    assert {name: shown.get(numbers[name], 0) for name in expected} == expected
