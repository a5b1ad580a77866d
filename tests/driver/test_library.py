"""The C library: under AddressSanitizer and UndefinedBehaviorSanitizer, and read by a static checker."""

import io
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.core.chips import chip
from weft.driver import program
from weft.driver.records import Options
from weft.driver.report import Report
from weft.driver.serve import Server
from weft.vm.launch import PLAIN

SOURCES = Path("src/weft/driver")
SANITISERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def run_program(command: list[str], library: Path, folder: Path, **variables: str) -> tuple[int, str, str]:
    """Run a program with the library in `library`; return exit code, output and what the server printed."""
    path, said = str(folder / "socket"), io.StringIO()
    listening = program.listen(path)
    server = Server(listening, Options(chip("l4"), 1 << 30, PLAIN, 1, 1 << 20, keep_going=True), Report(out=said))
    output = folder / "output"
    with output.open("w") as file:
        child = subprocess.Popen(
            command, env=program.environment(library, path, None) | variables, stdout=file, stderr=file
        )
        server.start()
        code = program.wait(child)
        server.close()
    return code, output.read_text(), said.getvalue()


@pytest.fixture(scope="module")
def checked_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built with sanitisers."""
    folder = tmp_path_factory.mktemp("checked")
    subprocess.run(["scripts/build_driver", "--to", str(folder), *SANITISERS], check=True, capture_output=True)
    return folder


@needs_compiler
@pytest.mark.parametrize("program", ["calls", "graphs"])
def test_calls_in_many_ways_under_sanitisers(program: str, checked_library: Path, tmp_path: Path) -> None:
    built = tmp_path / program
    source = f"tests/driver/programs/{program}.c"
    library = str(checked_library / "libcuda.so.1")
    subprocess.run(["cc", *STRICT, *SANITISERS, "-g", "-o", str(built), source, library, "-lpthread"], check=True)
    code, output, said = run_program(
        [str(built)],
        checked_library,
        tmp_path,
        LD_PRELOAD="",  # a sanitiser's library must be the first
        ASAN_OPTIONS="detect_leaks=1:abort_on_error=0",
        UBSAN_OPTIONS="print_stacktrace=1",
    )
    assert (code, output) == (0, "ok\n"), said


@needs_compiler
@pytest.mark.parametrize("name", [program.LIBRARY, program.AUDIT])
def test_the_library_needs_nothing_but_the_c_library(driver_library: Path, name: str) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    shown = subprocess.run(
        ["readelf", "-d", str(driver_library / name)], check=True, capture_output=True, text=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]\n") for line in shown.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert f"[{name}]" in next(line for line in shown.splitlines() if "(SONAME)" in line)


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="cppcheck is not installed")
def test_a_static_checker_finds_nothing() -> None:
    done = subprocess.run(
        [
            "cppcheck",
            "--enable=warning,performance,portability",
            "--error-exitcode=1",
            "--inline-suppr",
            "--suppress=missingIncludeSystem",
            "--quiet",
            "-DCUDART=13",
            "-D__x86_64__",
            *map(str, SOURCES.glob("*/*.c")),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
