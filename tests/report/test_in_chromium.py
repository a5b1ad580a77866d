"""The pages in a real browser: every section is drawn, without complaints and without requests to the network."""

import json
from pathlib import Path

import pytest

from tests.journal.test_report import ledger
from tests.report.browser import Browser
from tests.report.pages import HOSTILE, kernel
from weft.journal.html import html as journal_page
from weft.report.page import KERNEL_SCRIPTS, KERNEL_STYLES, SEARCH_SCRIPTS, SEARCH_STYLES, asset, kernel_page

SAMPLES = Path(__file__).parents[2] / "docs" / "samples"
SECTIONS = {
    "failing_kernel": ("verdict", "error", "stages", "source", "cost"),
    "search": ("verdict", "progress", "lineage", "levers", "insights", "cost"),
}
ASSETS = {
    "failing_kernel": (*KERNEL_STYLES, *KERNEL_SCRIPTS),
    "search": (*SEARCH_STYLES, *SEARCH_SCRIPTS),
}
PHONE = 390
COLOURS = "[...new Set(context.getImageData(0, 0, canvas.width, canvas.height).data)].length"


def text_of(browser: Browser, selector: str) -> str:
    found: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


def wider_than_the_window(browser: Browser) -> list[str]:
    """Return elements that extend beyond the right edge, except inside scrolling elements."""
    found: list[str] = browser.evaluate(
        """[...document.querySelectorAll('body *')].filter(e => {
             const b = e.getBoundingClientRect();
             if (b.width === 0 || b.right <= document.documentElement.clientWidth + 1) return false;
             for (let p = e.parentElement; p; p = p.parentElement)
               if (getComputedStyle(p).overflowX !== 'visible') return false;
             return true;
           }).map(e => e.outerHTML.slice(0, 80))"""
    )
    return found


def check_quiet(browser: Browser) -> None:
    assert browser.complaints == [] and browser.outside == []
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("sample", SECTIONS)
def test_samples_are_small_and_of_this_version(sample: str) -> None:
    page = SAMPLES / f"{sample}.html"
    assert page.stat().st_size < 400_000
    text = page.read_text()
    for name in ASSETS[sample]:
        assert asset(name) in text, f"{name} has changed: write the samples again with scripts/sample_reports"
    assert (SAMPLES / "report.png").stat().st_size < 200_000


@pytest.mark.parametrize("width", [1280, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sample", SECTIONS)
def test_every_section_is_drawn(sample: str, scheme: str, width: int, browser: Browser, tmp_path: Path) -> None:
    browser.open(SAMPLES / f"{sample}.html", width=width, scheme=scheme)
    for section in SECTIONS[sample]:
        picture = tmp_path / f"{section}.png"
        browser.screenshot(picture, f"#{section}")
        wide, high = (int.from_bytes(picture.read_bytes()[at : at + 4]) for at in (16, 20))  # of PNG's first chunk
        assert wide <= width and high > 60
    assert wider_than_the_window(browser) == []
    back, ink = browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = [sum(map(float, colour[4:-1].split(","))) for colour in (back, ink)]
    assert light[0] > 600 > 200 > light[1] if scheme == "light" else light[0] < 200 < 600 < light[1]
    check_quiet(browser)


def test_the_error_map_is_read_by_keyboard_and_pointer(browser: Browser) -> None:
    browser.open(SAMPLES / "failing_kernel.html")
    assert browser.evaluate(
        "(() => { const canvas = document.getElementById('map-canvas'), context = canvas.getContext('2d'); "
        f"return {COLOURS} > 20; }})()"
    )
    browser.evaluate("document.getElementById('map-canvas').focus()")
    # It opens at the worst element.
    worst = browser.evaluate("document.getElementById('map-slice').selectedOptions[0].text.split('worst ')[1]")
    against = text_of(browser, "#map-against")
    assert against.startswith("✕ beyond its limit of ") and against.endswith(" times that")
    times = float(against.removesuffix(" times that").split(": ")[1])
    assert abs(times / float(worst.split(" × ")[0].replace(",", "")) - 1) < 0.01
    browser.press("Home")
    assert text_of(browser, "#map-column") == "0"
    row = int(text_of(browser, "#map-row"))
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    assert text_of(browser, "#map-column") == "2" and int(text_of(browser, "#map-row")) == max(row - 1, 0)
    expected, actual = (float(text_of(browser, f"#map-{name}")) for name in ("expected", "actual"))
    assert abs(abs(expected - actual) - float(text_of(browser, "#map-error"))) < 1e-3
    browser.press("w")
    assert int(text_of(browser, "#map-row")) == row
    # The smallest case: warps are known, and the pointer reads as the keys do.
    browser.click("label:nth-of-type(2) input[name=map] + span")
    assert text_of(browser, "#map-warp").isdigit()
    browser.evaluate("document.getElementById('map-canvas').scrollIntoView({block: 'center'})")
    x, y = browser.evaluate("(b => [b.x + 41, b.y + 7])(document.getElementById('map-canvas').getBoundingClientRect())")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert (text_of(browser, "#map-row"), text_of(browser, "#map-column")) == ("0", "0")
    check_quiet(browser)


def test_the_source_shows_the_line_of_a_finding(browser: Browser) -> None:
    browser.open(SAMPLES / "failing_kernel.html")
    lit = browser.evaluate("document.querySelector('.source tr.chosen').id")
    assert browser.evaluate(f"document.getElementById('{lit}').classList.contains('cause')")
    browser.press("j")  # a race of the same line
    assert browser.evaluate("document.querySelector('.source tr.chosen').id") == lit
    browser.press("j")
    third = browser.evaluate("document.querySelector('.source tr.chosen').id")
    assert third != lit and browser.evaluate("document.activeElement.closest('.findings') !== null")
    browser.press("k")
    assert browser.evaluate("document.querySelector('.source tr.chosen').id") == lit
    inside = browser.evaluate(
        "(() => { const r = document.querySelector('.source tr.chosen').getBoundingClientRect(), "
        "v = document.getElementById('source-view').getBoundingClientRect(); "
        "return r.top >= v.top && r.bottom <= v.bottom; })()"
    )
    assert inside
    check_quiet(browser)


def test_candidates_are_chosen_in_the_tree(browser: Browser) -> None:
    browser.open(SAMPLES / "search.html")
    shown = "[...document.querySelectorAll('.candidate')].filter(e => e.offsetHeight > 0).map(e => e.id)"
    winner = browser.evaluate("document.querySelector('.mark.winner').closest('[data-candidate]').dataset.candidate")
    assert browser.evaluate(shown) == [f"c{winner}"]
    parent = browser.evaluate(f"document.querySelector('#lineage-chart [data-candidate=\"{winner}\"]').dataset.parents")
    browser.evaluate(f"document.querySelector('#lineage-chart [data-candidate=\"{winner}\"]').focus()")
    browser.press("ArrowLeft")
    assert browser.evaluate(shown) == [f"c{parent.split()[0]}"]
    assert browser.evaluate("document.activeElement.dataset.candidate") == parent.split()[0]
    browser.click("#insight-rows a[data-candidate='3']")
    assert browser.evaluate(shown) == ["c3"]
    assert browser.evaluate("document.querySelectorAll('#c3 .diff .added').length") > 0
    rows = "[...document.querySelectorAll('#insight-rows tr')].filter(e => !e.hidden).map(e => e.dataset.proof)"
    assert set(browser.evaluate(rows)) == {"confirmed", "refuted"}
    browser.click("#proof label:nth-of-type(3) span")
    assert set(browser.evaluate(rows)) == {"refuted"}
    check_quiet(browser)


def test_the_theme_can_be_chosen_and_everything_is_reached_by_tab(browser: Browser) -> None:
    browser.open(SAMPLES / "failing_kernel.html", scheme="light")
    seen = []
    for _ in range(14):
        browser.press("Tab")
        seen.append(browser.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert seen[0] == "Skip to the report" and "theme" in seen and "Copy" in seen
    paint = "getComputedStyle(document.body).backgroundColor"
    before = browser.evaluate(paint)
    browser.evaluate("document.getElementById('theme').focus()")
    browser.press("Enter")
    browser.press("Enter")
    assert text_of(browser, "#theme") == "Theme: dark" and browser.evaluate(paint) != before
    browser.press("Enter")
    assert browser.evaluate(paint) == before
    check_quiet(browser)


def test_injected_code_does_not_run(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(kernel_page(kernel(HOSTILE)))
    browser.requests.clear()
    browser.open(page)
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.requests == [page.as_uri()]
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    # Even an injected element could not run code.
    browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<i onclick=\"window.hacked=1\" id=through></i>')")
    browser.evaluate("document.getElementById('through').click()")
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)
    browser.complaints.clear()


@pytest.mark.parametrize("width", [1280, PHONE])
def test_the_journal_is_drawn_too(width: int, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "journal.html"
    page.write_text(journal_page(ledger(HOSTILE)))
    for scheme in ("light", "dark"):
        browser.open(page, width=width, scheme=scheme)
        assert wider_than_the_window(browser) == []
        assert browser.evaluate("typeof window.hacked") == "undefined"
        check_quiet(browser)


def test_it_can_be_printed(browser: Browser) -> None:
    browser.open(SAMPLES / "failing_kernel.html", scheme="dark")
    browser.scheme("dark", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('.bar')).display") == "none"
    assert browser.send("Page.printToPDF", transferMode="ReturnAsBase64", paperWidth=8.3, paperHeight=11.7)["data"]
    check_quiet(browser)
