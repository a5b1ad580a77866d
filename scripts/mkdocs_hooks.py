"""Hooks for mkdocs: the order of the pages, links to files outside docs/, and the text of ARCHITECTURE.md."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).parents[1]

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("index.md", "ten_minutes.md", "reference/install.md"),
    "Tutorials": (
        "tutorials/own_kernel.md", "tutorials/red_to_green.md", "tutorials/green_to_fast.md",
        "tutorials/evolve_overnight.md",
        "tutorials/triton_on_a_laptop.md", "tutorials/ci_without_a_gpu.md", "tutorials/",
    ),
    "How to": ("howto/diagnose.md", "howto/profile.md", "howto/", "run_on_gpu.md", "agents.md"),
    "Findings": ("reference/findings.md", "findings/", "signatures.md"),
    "Reference": ("reference/python.md", "reference/", "ptx_coverage.md", "fp8.md"),
    "How it works": (
        "architecture.md", "fidelity.md", "comparison.md", "scale.md", "robustness.md", "open_cases.md", "",
        "decisions/",
    ),
}  # fmt: skip
"""Section → its pages in order; a folder means all of its pages that are not named, "" all remaining pages."""

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_INCLUDE = "<!-- include ARCHITECTURE.md -->"


def on_config(config: Any) -> Any:
    """Put every page of docs/ into the navigation, also pages that SECTIONS does not name."""
    pages = sorted(path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md"))
    config.nav = navigation(pages)
    return config


def navigation(pages: list[str]) -> list[dict[str, list[str]]]:
    named = {entry for entries in SECTIONS.values() for entry in entries if entry.endswith(".md")}
    left = [page for page in pages if page not in named]
    found: list[dict[str, list[str]]] = []
    for title, entries in SECTIONS.items():
        listed: list[str] = []
        for entry in entries:
            if entry.endswith(".md"):
                chosen = [entry] if entry in pages else []
            else:
                chosen = [page for page in left if page.startswith(entry) and (entry or "/" not in page)]
                left = [page for page in left if page not in chosen]
            listed += chosen
        found.append({title: listed})
    if left:
        raise ValueError(f"no section for {', '.join(left)}")
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository that are no pages by their paths."""
    if _INCLUDE in markdown:
        text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n")[2]
        markdown = markdown.replace(_INCLUDE, text.replace("](docs/", "]("))
    here = PurePosixPath("docs", page.file.src_uri).parent

    def shown(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path = normpath(str(here / target.partition("#")[0]))
        if path.startswith("docs/") and not (ROOT / path).is_dir():
            return match[0]
        name = f"`{path}`"
        return match["text"] if match["text"].strip("`") == path else f"{match['text']} ({name})"

    return _LINK.sub(shown, markdown)
