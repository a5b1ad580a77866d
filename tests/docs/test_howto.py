"""Pages of docs/howto that show consoles: every command is run and its output compared."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page

PAGES = {
    "bundle.md": 3,
    "certify_source_mutants.md": 2,
    "evolve.md": 3,
    "flashinfer_bench.md": 5,
    "gpu_mode.md": 3,
    "import_torch_extension.md": 7,
    "journal.md": 15,
    "kernelbench.md": 5,
    "profile.md": 16,
    "ptx_files.md": 5,
    "pytest.md": 3,
    "report.md": 4,
    "run_a_cuda_program.md": 2,
    "test_suite_in_ci.md": 2,
    "triton.md": 4,
}
"""Page → how many commands it shows at least."""

SLOW = {"evolve.md", "flashinfer_bench.md", "gpu_mode.md", "kernelbench.md", "profile.md", "pytest.md", "triton.md"}
"""Twenty seconds to more than a minute each: in `scripts/test -m sweep`."""

LEFT_OUT = {
    "add_chip.md",
    "add_engine.md",
    "add_finding.md",
    "add_instruction.md",
    "add_kernel.md",
    "add_rung.md",
    "add_task.md",
    "bench.md",
    "diagnose.md",
    "robust_kbench.md",
}
"""They change Weft itself, need a GPU, continue with another page's files, or have a separate test."""


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.sweep] * (page in SLOW)) for page in PAGES])
def test_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    monkeypatch.setenv("COLUMNS", "160")
    # The pytest of a page must not see that it runs inside a pytest; under CI it would not shorten its summary.
    for name in ("BUILD_NUMBER", "CI", "GITHUB_ACTIONS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    assert run_page(DOCS / "howto" / page, tmp_path) >= PAGES[page]


def test_no_page_with_a_console_is_left_out() -> None:
    shown = {page.name for page in (DOCS / "howto").glob("*.md") if "```console" in page.read_text()}
    assert shown - LEFT_OUT == set(PAGES)
