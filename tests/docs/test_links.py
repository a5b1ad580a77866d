"""No dead link, checked offline: relative links and anchors of every Markdown file, and of the site that is built."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import weft

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def text_of(page: Path) -> str:
    """Return the page without code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "code", _FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return set(found) | {f"{slug}-{n}" for slug, many in found.items() for n in range(1, many + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(text_of(page)):
        parts = urlsplit(target)
        if parts.scheme:
            assert parts.scheme in ("http", "https", "mailto") and (parts.netloc or parts.path), target
            continue
        assert not target.startswith("/"), f"{target}: relative, so that it works in a checkout"
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        assert file.exists(), target
        if parts.fragment and file.suffix == ".md":
            assert parts.fragment in anchors(file), f"{target}: {file.name} has {sorted(anchors(file))}"


class Links(HTMLParser):
    """Targets and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.targets.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `mkdocs build --strict` does: any warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, Links]:
    found = {}
    for page in site.rglob("*.html"):
        found[page] = Links()
        found[page].feed(page.read_text())
    return found


def test_the_site_has_every_page_and_no_dead_link(site: Path, links: dict[Path, Links]) -> None:
    expected = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert expected <= {page.relative_to(site) for page in links}
    dead = []
    for page, here in links.items():
        if page.name == "404.html":  # served for any path, so its links are absolute
            continue
        for target in here.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            known = not parts.fragment or file not in links or unquote(parts.fragment) in links[file].anchors
            if not file.exists() or not known:
                dead.append(f"{page.relative_to(site)}: {target}")
    assert not dead


def test_nothing_is_fetched_from_elsewhere(site: Path, links: dict[Path, Links]) -> None:
    """Pages open without a network: scripts, styles, fonts and pictures are files of the site."""
    for page in links:
        for address in re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", page.read_text()):
            raise AssertionError(f"{page.relative_to(site)}: {address}")


def public_members() -> list[str]:
    """Return the names of `weft.__all__`, and the public methods and properties of its classes."""
    found = []
    for name in weft.__all__:
        value = getattr(weft, name)
        if name.startswith("__"):
            continue
        found.append(name)
        if isinstance(value, type):
            found += [f"{name}.{member}" for member in vars(value) if not member.startswith("_")]
    return found


def test_every_public_name_has_a_docstring_and_is_in_the_reference(site: Path, links: dict[Path, Links]) -> None:
    reference = links[site / "reference" / "python.html"].anchors
    for name in public_members():
        owner, _, member = name.partition(".")
        value = getattr(weft, owner)
        described = vars(value)[member] if member else value
        if callable(described) or isinstance(described, property):  # a constant's text would be that of its type
            assert described.__doc__, f"{name} has no docstring"
        assert any(anchor.endswith(f".{name}") for anchor in reference), f"{name} is not in docs/reference/python.md"
