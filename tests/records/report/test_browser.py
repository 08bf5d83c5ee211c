"""The report in a real headless Chromium: nothing leaves the page, nothing of a log is executed, all can be used."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.cli import main
from autosched.records import Record, RecordFilter, make_record, open_store
from autosched.records.report import Peak, make_document, make_page
from autosched.records.report import page as page_module
from autosched.records.where import parse_where
from autosched.space import Config
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import matmul_task, record
from tests.records.report.test_page import EVIL, evil_record
from tests.spread import spread

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)")
UNNAMED = """[...document.querySelectorAll('input, select, button, .chart, .wide, section')]
    .filter((e) => !e.closest('[hidden], .modebar') && !e.labels?.length && !e.getAttribute('aria-label')
        && !e.textContent.trim() && !document.getElementById(e.getAttribute('aria-labelledby'))?.textContent.trim())
    .map((e) => e.id || e.tagName)"""
WIDER = """[document.documentElement, ...document.querySelectorAll('main *, header *')].filter((e) =>
    !e.closest('.wide *, pre, .hidden, .js-plotly-plot *') && e.getBoundingClientRect().right > innerWidth + 1)
    .map((e) => e.id || e.outerHTML.slice(0, 80))
    .concat(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])"""
CHARTS = ("progress", "shares", "roofline", "convergence", "importance", "parallel", "pairs", "failures")


def tuned_records() -> list[Record]:
    """A task as a tuning leaves it: two knobs that matter, one that does not, some failures, a winner."""
    task, rng = matmul_task(), random.Random(0)
    found = []
    for n in range(260):
        knobs: dict[str, Any] = {"rows": rng.randint(1, 6), "order": rng.choice(["ijk", "ikj"]), "idle": n % 2 == 0}
        time_s = 1e-3 * (1 + abs(knobs["rows"] - 4)) * (1.5 if knobs["order"] == "ijk" else 1) * rng.uniform(1, 1.1)
        measurement = Measurement(Status.OK, (time_s,))
        if n % 20 == 7:
            measurement = Measurement(Status.CRASH, error="the worker process was ended by SIGSEGV")
        trial = Trial(Config("matmul", knobs), measurement)
        found.append(dataclasses.replace(make_record(task, trial, is_default=n == 0), time=float(n)))
    best = min((r for r in found if r.measurement.is_ok), key=lambda r: r.measurement.median_s)
    good = dataclasses.replace(best.measurement, how={"baseline_s": 4e-3, "noise": 0.03})
    return [*found, dataclasses.replace(best, measurement=good, is_default=False, is_winner=True, time=300.0)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    with open_store(path.with_suffix(".db")) as store:
        store.add([*tuned_records(), evil_record()])
        device = matmul_task().target.fingerprint()
        peak = Peak(device.model_name, 2, 1e11, (("L1", 1 << 15, 2e11), ("memory", 1 << 28, 2e10)))
        first = matmul_task().key
        sources = {first: {"Winner: <b>": "def kernel(): <script>alert(3)</script>", "Default": "def kernel(): 0"}}
        flops = {first: 2 * 128 * 256 * 784}
        machines = {(device, 2): peak}
        in_model = {"before_ms": 5.0, "after_ms": 4.0, "low": 0.79, "high": 0.81}
        document = make_document(store, sources=sources, flops=flops, machines=machines, in_model=in_model)
    path.write_text(make_page(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def light(browser: Any, report: Path) -> Iterator[tuple[Any, list[str]]]:
    """The page, drawn, and what it said or asked for meanwhile."""
    page = browser.new_page(color_scheme="light", viewport={"width": 1200, "height": 900})
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"console {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error {error}"))
    page.on("dialog", lambda dialog: (heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: heard.append(f"request {request.url}"))
    page.goto(report.as_uri())
    wait(page)
    yield page, heard


def wait(page: Any) -> None:
    page.wait_for_selector("html[data-ready=yes]", timeout=60_000)


def test_charts_are_drawn_and_nothing_leaves_the_page(light: tuple[Any, list[str]], report: Path) -> None:
    page, heard = light
    assert heard == [f"request {report.as_uri()}"]
    drawn = page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map((e) => e.id)")
    assert set(drawn) == set(CHARTS)
    page.evaluate("fetch('https://example.com/').catch(() => 0)")
    assert any("Content Security Policy" in text for text in heard[1:]), "the page itself refuses requests"
    del heard[1:]


def test_the_headline_is_of_whole_runs_of_the_model(light: tuple[Any, list[str]]) -> None:
    page, _ = light
    assert page.locator("#summary dd").first.inner_text().split("\n")[0].startswith("5 → 4 ms")
    assert "−20.0 %, ± 1.0; every kernel in it, tuned or not" in page.locator("#summary").inner_text()


def test_what_a_log_says_is_text(light: tuple[Any, list[str]]) -> None:
    page, heard = light
    assert page.locator("img").count() == 0 and page.locator("main script").count() == 0
    texts = page.locator("#task-table tbody button").all_inner_texts()
    assert any(text.startswith(EVIL) for text in texts)
    first = texts.index(next(text for text in texts if text.startswith("matmul 128x784")))
    for index in (1 - first, first):
        page.get_by_label("Task", exact=True).select_option(index=index)
        wait(page)
    assert page.locator("#sources pre").all_inner_texts()[0] == "def kernel(): <script>alert(3)</script>"
    assert not [text for text in heard if text.startswith(("dialog", "error"))]


def test_error_bars_noise_versions_and_the_axis_of_time(light: tuple[Any, list[str]]) -> None:
    page, _ = light
    page.get_by_label("Task", exact=True).select_option(label=task_label(page))
    wait(page)
    last = "document.getElementById('convergence').data.at(-1)"
    assert page.evaluate(f"{last}.error_y.array[0] / {last}.y[0]") == pytest.approx(0.03)
    bars = page.evaluate("document.getElementById('shares').data[0]")
    assert max(a / b for a, b in zip(bars["error_x"]["array"], bars["x"])) == pytest.approx(0.03)
    assert "± 3 %" in page.locator("#summary").inner_text()
    cells = page.locator("#task-table tbody tr", has_text="784x256").locator("td").all_inner_texts()
    assert "3 %" in cells
    versions = page.locator("#versions").inner_text()
    assert f"autosched {autosched.__version__}" in versions and "numba" in versions
    for over, title, most in (("wall-clock time", "minutes of tuning", 300 / 60), ("trials", "trials", 261)):
        page.get_by_label("Charts of progress over").select_option(label=over)
        wait(page)
        for chart in ("progress", "convergence"):
            place = f"document.getElementById('{chart}')"
            assert page.evaluate(f"{place}.layout.xaxis.title.text") == title
            assert page.evaluate(f"{place}.data.at(-1).x.at(-1)") == pytest.approx(most, abs=3)


def test_tables_sort_filter_and_page(light: tuple[Any, list[str]], report: Path) -> None:
    page, _ = light
    page.get_by_label("Task", exact=True).select_option(label=task_label(page))
    wait(page)
    column = "[...document.querySelectorAll('#trial-table tbody tr')].map((r) => r.cells[1].textContent)"
    assert page.locator("#trial-count").inner_text() == "100 of 261 trials shown"
    page.locator("#more").click()
    assert page.locator("#trial-count").inner_text() == "200 of 261 trials shown"
    head = page.locator("#trial-table th", has_text=re.compile("^ms"))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(text) for text in page.evaluate(column)]
    assert values == sorted(values)
    page.locator("#trial-filter").fill("rows=4 crash")
    shown = page.evaluate("[...document.querySelectorAll('#trial-table tbody tr')].map((r) => r.textContent)")
    assert shown and all("crash" in text for text in shown)
    with page.expect_download() as download:
        page.locator("#save").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith('"#","ms","over best"') and len(lines) == len(shown) + 1
    for text in (
        "ms>2",
        "not ms>2",
        "status!=ok",
        "winner=yes",
        "ms<=2 and (template=matmul or threads=99)",
        "status~ras",
    ):
        page.locator("#trial-filter").fill(text)
        wanted = found_by(text, report.with_suffix(".db"))
        assert f"of {wanted} trial" in page.locator("#trial-count").inner_text(), text
    page.locator("#trial-filter").fill("rows=4 and order=ikj and status=ok")
    wanted = sum(
        1 for r in tuned_records() if r.config["rows"] == 4 and r.config["order"] == "ikj" and r.measurement.is_ok
    )
    assert f"of {wanted} trial" in page.locator("#trial-count").inner_text()
    for text, problem in (("ms>", "ends too early"), ("nothing<2", 'no field "nothing"'), ("(ms<2", "not closed")):
        page.locator("#trial-filter").fill(text)
        assert problem in page.locator("#trial-count").inner_text()
    page.locator("#trial-filter").fill("")
    page.locator("#filter").fill("784x256")
    assert page.locator("#task-count").inner_text() == "1 of 2 tasks"
    page.locator("#filter").fill("")


def found_by(text: str, database: Path) -> int:
    """How many trials of the task `autosched logs show --where` finds."""
    with open_store(database, write=False) as store:
        return len(list(store.records(RecordFilter(where=parse_where(text), workload=matmul_task().key))))


def task_label(page: Any) -> str:
    labels: list[str] = page.locator("#chosen option").all_inner_texts()
    return next(label for label in labels if "matmul 128x784" in label)


def test_keyboard_and_screen_reader(light: tuple[Any, list[str]]) -> None:
    page, _ = light
    page.reload()
    wait(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#tasks"
    seen, wanted = set(), {"theme", "filter", "chosen", "next", "knob-x", "trial-filter", "save", "more", "Share"}
    for _ in range(100):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert wanted <= seen
    page.locator("#task-table tbody button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "chosen" and page.locator("#chosen").input_value() == "1"
    page.get_by_label("Task", exact=True).select_option(index=0)
    wait(page)
    assert page.evaluate(UNNAMED) == []
    for name in CHARTS:
        described = page.locator(f"#{name}").get_attribute("aria-labelledby")
        assert page.locator(f"#{described}").inner_text(), f"{name} has words for those who do not see it"
    assert page.locator("table caption").count() == 2 and page.locator("html").get_attribute("lang") == "en"


def test_light_and_dark(light: tuple[Any, list[str]], browser: Any, report: Path) -> None:
    page, _ = light
    assert contrast(page) > 7
    page.locator("#theme").click()
    page.locator("#theme").click()
    wait(page)
    assert page.locator("#theme").inner_text() == "Theme: dark" and contrast(page) > 7
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    assert page.evaluate("document.querySelector('#shares .xtick text').style.fill") == "rgb(230, 234, 239)"
    page.locator("#theme").click()
    page.emulate_media(color_scheme="dark")
    wait(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    page.emulate_media(color_scheme="light")


def contrast(page: Any) -> float:
    """The contrast of text and paper as WCAG computes it."""
    colors = page.evaluate("(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))")
    light, dark = sorted((_luminance(color) for color in colors), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(number) / 255 for number in re.findall(r"\d+", color)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_an_empty_database_gives_a_page(browser: Any, tmp_path: Path) -> None:
    with open_store(tmp_path / "r.db") as store:
        (tmp_path / "r.html").write_text(make_page(make_document(store)), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "r.html").as_uri())
    wait(page)
    summary = page.locator("#summary").inner_text()
    assert errors == [] and page.locator("#tasks").is_hidden() and "0" in summary and "0 → 0" not in summary


def test_a_task_whose_trials_are_left_out_says_so(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MOST_DATA", 0)
    with open_store(tmp_path / "r.db") as store:
        store.add([record(i, task=matmul_task(m=m)) for m in (16, 32) for i in range(1, 12)])
        (tmp_path / "r.html").write_text(make_page(make_document(store)), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "r.html").as_uri())
    wait(page)
    assert "are in this page" not in page.text_content("#winner")
    page.click("#next")
    page.locator("#winner", has_text="0 of its 11 trials are in this page").wait_for()
    assert errors == []
    page.close()


@spread(3, "width", [360, 768, 1280])
def test_the_page_fits_and_has_no_serious_finding(browser: Any, report: Path, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    script = (Path(axe.__path__[0]) / "axe.min.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
        page.goto(report.as_uri())
        wait(page)
        assert page.evaluate(WIDER) == [], f"nothing is wider than {width} pixels"
        page.evaluate(script)
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        serious = {v["id"]: v["nodes"][0]["html"][:200] for v in found if v["impact"] in ("serious", "critical")}
        assert serious == {}, scheme
        page.close()


def test_two_databases_side_by_side(browser: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, time_s in (("a", 2e-3), ("b", 1e-3)):
        with open_store(tmp_path / f"{name}.db") as store:
            good = Measurement(Status.OK, (time_s,), how={"baseline_s": 4e-3})
            trials = [Trial(Config("matmul", {"rows": rows}), good) for rows in (1, 2)]
            store.add([make_record(matmul_task(), trial, is_winner=trial is trials[1]) for trial in trials])
    path = tmp_path / "r.html"
    names = [str(tmp_path / f"{name}.db") for name in "ab"]
    assert main(["logs", "report", "--compare", *names, "-o", str(path), "--no-roofline"]) == 0
    page = browser.new_page(viewport={"width": 360, "height": 800})
    page.goto(path.as_uri())
    wait(page)
    assert page.evaluate(WIDER) == []
    cells = page.locator("#compare-table tbody td").all_inner_texts()
    assert cells[0].startswith("matmul 128x784") and cells[2:] == ["2", "1", "2.00×", "faster"]
    assert "B is faster on 1 task, slower on 0" in page.locator("#compare-text").inner_text()
    page.close()
    assert main(["logs", "report", "--compare", *names, "--db", names[0]]) == 2
    assert "leave --db out" in capsys.readouterr().err
