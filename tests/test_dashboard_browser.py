"""Dashboard and reports in a real browser: every view draws, follows a run, and can be used by all."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lamina.commands.showing import explain_for_page, what_if_for_page
from lamina.continual import Run, parse_config, read_config
from lamina.monitoring import (
    Dashboard,
    EvaluationRow,
    LayerRow,
    Recorder,
    inspect_run,
    write_comparison,
    write_report,
)
from made_runs import NASTY, finish, make_run, step_row
from tiny_runs import STREAM, command, write_config, write_log

from benchmarks._browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.timeout(180),
]
PLOTS = "document.querySelectorAll('.plot .main-svg').length"
LISTED = "document.querySelectorAll('.runs tbody tr').length === 3"
READY = f"{PLOTS} >= 12 && document.querySelector('.slider') !== null"
STATE = "document.querySelector('.state').innerText"
TROUBLE = "document.querySelector('#trouble').innerText"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """No view may write to the console."""
    browser = request.getfixturevalue("browser")
    browser.complaints.clear()
    browser.resize(1280)
    browser.prefer("light")
    yield
    browser.blank()
    assert browser.complaints == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that really learnt, a made one with phases and nasty names, a damaged one, an empty folder."""
    folder = tmp_path_factory.mktemp("runs")
    log = write_log(folder / ".log", STREAM)
    config = write_config(folder / ".config.yaml", log=str(log), learner={"memory": {"capacity": 90}})
    assert command("run", config, "--run-dir", folder / "real", "--quiet").code == 0
    layers = {f"layer{place}": LayerRow(place, 9, 90) for place in range(9)} | {NASTY: LayerRow(1, 2, 3)}
    nasty = {"name": NASTY, "config": {"learner": {NASTY: NASTY}}, "phase": NASTY, "layers": layers}
    make_run(folder / "nasty", steps=40, **nasty)
    with open(make_run(folder / "damaged") / "metrics.jsonl", "ab") as table:
        table.write(b"not a row\n")
    (folder / "empty").mkdir()
    add_phases(folder / "nasty")
    return folder


def add_phases(folder: Path) -> None:
    with open(folder / "metrics.jsonl", "a") as table:
        for phase, accuracies in (("one", (0.9, 0.1)), ("two", (0.6, 0.8))):
            for task, accuracy in zip(("first", NASTY), accuracies, strict=True):
                row = EvaluationRow(40, 160, phase, task, accuracy, 0.5, 100, 0.1).row()
                table.write(json.dumps(row, separators=(",", ":")) + "\n")


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Dashboard]:
    with Dashboard(runs, what_if=what_if_for_page, explain=explain_for_page) as page:
        yield page


def text(browser: Browser, selector: str) -> str:
    found: str = browser.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
    return found


def go(browser: Browser, page: Dashboard, view: str, ready: str) -> None:
    """Opens a view anew, as somebody does who follows a link to it."""
    browser.blank()
    browser.open(f"{page.url}#/{view}" if view else page.url)
    browser.wait(ready)


def rows(browser: Browser) -> list[str]:
    """The lines of the list."""
    found: list[str] = browser.run(
        "[...document.querySelectorAll('.runs tbody tr')].map((row) => row.innerText)"
    )
    return found


def overflow(browser: Browser) -> Any:
    return browser.run("document.documentElement.scrollWidth - innerWidth")


def test_the_list_shows_every_run_and_leads_to_it(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "", LISTED)
    assert [line for line in rows(browser) if "onerror" in line and "finished" not in line]
    browser.run("document.querySelector('#filter').value = 'digits rbf finished'")
    browser.run("document.querySelector('#filter').dispatchEvent(new Event('input'))")
    [line] = rows(browser)
    assert "tiny" in line
    browser.run("document.querySelector('.runs a').click()")
    browser.wait(f"{PLOTS} > 0")
    assert text(browser, "h1").startswith("tiny")
    browser.run("history.back()")
    browser.wait(LISTED)


def test_a_run_shows_what_inspection_says(browser: Browser, page: Dashboard, runs: Path) -> None:
    go(browser, page, "run/real", READY)
    found = inspect_run(runs / "real")
    assert f"{found['totals']['entries']:,}" in text(browser, ".figures")
    assert f"{found['evaluations'][0]['accuracy']:.4f}" in text(browser, ".figures")
    assert browser.run(
        "[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.trace'))"
    )
    assert "Problems" not in text(browser, "main")
    assert browser.run("document.querySelectorAll('.histograms svg rect').length") > 10


def test_sliders_tell_what_thresholds_cost(browser: Browser, page: Dashboard, runs: Path) -> None:
    go(browser, page, "run/real", "document.querySelector('#epsilon-readout') !== null")
    curve = what_if_for_page(runs / "real")["layers"]["readout"]["epsilon"]
    slide = """(at) => { const input = document.querySelector('#epsilon-readout');
        input.value = at; input.dispatchEvent(new Event('input')); }"""
    last = len(curve["counts"]) - 1
    browser.run(f"({slide})({last})")
    entries = inspect_run(runs / "real")["layers"]["readout"]["entries"]
    assert f"{entries} of {entries} entries (100.0 %" in text(browser, ".slider")
    browser.run("document.querySelector('#epsilon-readout').focus()")
    browser.press("ArrowLeft", 37)
    assert f"{curve['counts'][last - 1]} of {entries} entries" in text(browser, ".slider")


def test_a_prediction_is_explained_with_pictures(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "run/real", "document.querySelector('.explain') !== null")
    browser.run("document.querySelector('[name=index]').value = 3")
    browser.run("document.querySelector('.explain button').click()")
    browser.wait("document.querySelectorAll('.examples li').length === 7", 90)
    assert browser.run(
        "[...document.querySelectorAll('.examples img')].every((image) => image.naturalWidth > 8)"
    )
    assert "predicted" in text(browser, ".explain")
    browser.run("document.querySelector('[name=index]').value = 2000000000")
    browser.run("document.querySelector('.explain button').click()")
    browser.wait("document.querySelector('.explain .error') !== null", 90)
    assert "expected an example" in text(browser, ".explain .error")
    [complaint] = browser.complaints  # the browser notes the answer's code by itself
    assert "422" in complaint or "404" in complaint
    browser.complaints.clear()


def test_nothing_in_a_run_becomes_markup(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "run/nasty", f"{PLOTS} >= 10")
    assert browser.run("document.querySelectorAll('main img').length") == 0
    assert browser.run("document.title") == f"{NASTY} · Lamina"
    assert "onerror" in text(browser, ".legend") or "onerror" in text(browser, "main")
    assert browser.run("document.querySelectorAll('.matrix tbody tr').length") == 3  # two of them added
    assert "0.3000" in text(browser, ".matrix tfoot")  # 0.9 on the first task, then 0.6


def test_a_damaged_run_is_shown_with_its_problems(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "run/damaged", f"{PLOTS} >= 10")
    assert "metrics.jsonl line 13 is damaged" in text(browser, ".problems")


def test_runs_are_compared(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "", LISTED)
    browser.run("[...document.querySelectorAll('.choose input')].slice(0, 2).forEach((box) => box.click())")
    browser.run("document.querySelector('.tools .button').click()")
    browser.wait(f"{PLOTS} >= 8")
    assert browser.run("document.querySelectorAll('#chart-entries .trace').length") == 2
    assert "learner" in text(browser, "main")


def test_an_answer_that_takes_long_is_waited_for(
    browser: Browser, page: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without complaint about what was loaded meanwhile; a browser has some after five seconds."""
    answer = Dashboard._run

    def slow(self: Dashboard, query: Any) -> Any:
        time.sleep(6)
        return answer(self, query)

    monkeypatch.setattr(Dashboard, "_run", slow)
    go(browser, page, "run/real", f"{PLOTS} > 0")


def test_a_page_that_is_left_open_follows_a_run_to_its_end(browser: Browser, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", STREAM)
    config = parse_config(read_config(write_config(tmp_path / "config.yaml", log=str(log))))
    folder = tmp_path / "runs"
    folder.mkdir()
    with Dashboard(folder) as page:
        with Run.create(config, folder / "live") as run:
            run.execute(3, quiet=True)
            go(browser, page, "run/live", f"{PLOTS} > 0 && {STATE} === 'running'")
            assert "24" in text(browser, ".figures")
            browser.run("document.querySelector('.legend button').click()")  # hides a line
            run.execute(6, quiet=True)
            browser.wait("document.querySelector('.figures').innerText.includes('72')")
            button = "document.querySelector('.legend button').getAttribute('aria-pressed')"
            assert browser.run(button) == "false"
            run.execute(quiet=True)
        browser.wait(f"{STATE} === 'finished'")
        assert "96" in text(browser, ".figures")
        shutil.rmtree(folder / "live")
        browser.wait(f"{TROUBLE}.includes('no such run')")
        assert "96" in text(browser, ".figures")  # what was seen stays to be read
    browser.wait(f"{TROUBLE}.includes('does not answer')")
    browser.blank()
    browser.complaints.clear()  # the browser notes both kinds of answers by itself


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_views_fit_and_can_be_read(browser: Browser, page: Dashboard, width: int, scheme: str) -> None:
    """Nothing sticks out of the page, and every text has contrast AA against what is behind it."""
    browser.resize(width)
    browser.prefer(scheme)
    for view, ready in (
        ("", LISTED),
        ("run/real", READY),
        ("run/nasty", f"{PLOTS} >= 10"),
        ("compare/real,nasty", f"{PLOTS} >= 8"),
    ):
        go(browser, page, view, ready)
        assert overflow(browser) <= 0, (view, width)
        assert browser.run(CONTRAST) == [], (view, scheme)


def test_the_contrast_check_finds_what_cannot_be_read(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "", LISTED)
    browser.run("document.querySelector('h1').style.color = '#ddd'")
    [line] = browser.run(CONTRAST)
    assert line.startswith("Runs: 1.")


def test_colors_are_chosen_and_remembered(browser: Browser, page: Dashboard) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    go(browser, page, "", LISTED)
    light = browser.run(paper)
    browser.run("theme.value = 'dark'; theme.dispatchEvent(new Event('change'))")
    dark = browser.run(paper)
    assert light != dark
    go(browser, page, "run/real", f"{PLOTS} >= 12")
    assert browser.run(paper) == dark
    browser.run("theme.value = 'auto'; theme.dispatchEvent(new Event('change'))")
    assert browser.run(paper) == light


def test_everything_is_reached_with_the_keyboard(browser: Browser, page: Dashboard) -> None:
    go(browser, page, "run/real", READY)
    wanted = set(
        browser.run("""[...document.querySelectorAll('a[href], button, input, select, [tabindex="0"]')]
        .filter((node) => node.offsetParent !== null || node.className === 'skip')
        .map((node, i) => { node.dataset.stop = i; return String(i); })""")
    )
    browser.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(3 * len(wanted)):
        browser.press("Tab", 9)
        stop = browser.run("document.activeElement?.dataset?.stop ?? null")
        if stop in reached:
            break
        if stop is not None:
            reached.add(stop)
            assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert reached == wanted


def test_reports_need_neither_server_nor_network(browser: Browser, runs: Path, tmp_path: Path) -> None:
    path = write_report(runs / "real", tmp_path / "report.html", what_if=what_if_for_page(runs / "real"))
    browser.open(path.as_uri())
    browser.wait(f"{PLOTS} >= 12")
    assert "tiny" in text(browser, "h1")
    assert browser.run("document.querySelectorAll('.slider').length") == 2
    assert browser.run("document.querySelectorAll('.explain').length") == 0  # this needs the run's memory
    assert (
        browser.run(
            "performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length"
        )
        == 0
    )
    both = write_comparison([runs / "real", runs / "nasty"], tmp_path / "both.html")
    browser.open(both.as_uri())
    browser.wait(f"{PLOTS} >= 8")
    assert browser.run("document.querySelectorAll('#chart-entries .trace').length") == 2


def test_a_comparisons_page_begins_with_its_table(browser: Browser, runs: Path, tmp_path: Path) -> None:
    summed = {"head": ["run", "entries"], "rows": [["both (2 seeds)", "7 ± 1"]]}
    page = write_comparison([runs / "real", runs / "nasty"], tmp_path / "both.html", summed)
    browser.open(page.as_uri())
    browser.wait(f"{PLOTS} >= 10")  # those of every comparison, and two curves of forgetting
    assert "7 ± 1" in text(browser, "section")
    assert browser.run("document.querySelectorAll('.matrix').length") == 1  # a single phase has none
    assert "0.9000" in text(browser, ".matrix")


def test_whose_data_is_explained_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    asked: list[str | None] = []

    def explain(_: Path, *, phase: str | None, **__: object) -> dict[str, Any]:
        asked.append(phase)
        return {"label": "1", "predicted": "1", "layer": "readout", "examples": []}

    make_run(tmp_path / "two", steps=5, phase="one")
    row = json.dumps(step_row(6, phase="two").row(), separators=(",", ":"))
    with open(tmp_path / "two" / "metrics.jsonl", "a") as table:
        table.write(f"{row}\n")
    with Dashboard(tmp_path, what_if=what_if_for_page, explain=explain) as page:
        go(browser, page, "run/two", "document.querySelector('.explain') !== null")
        for choose in ("", "document.querySelector('[name=phase]').value = 'one'"):
            browser.run(f"{choose or 1}; document.querySelector('.explain p')?.remove()")
            browser.run("document.querySelector('.explain button').click()")
            browser.wait("document.querySelector('.explain ul') !== null", 20)
            browser.run("document.querySelector('.explain ul').remove()")
    assert asked == ["two", "one"]


def test_an_empty_folder_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    with Dashboard(tmp_path) as page:
        go(browser, page, "", "document.querySelector('.empty') !== null")
        assert "lamina run digits-online" in text(browser, "main")


def test_a_run_before_its_first_row(browser: Browser, tmp_path: Path) -> None:
    make_run(tmp_path / "new", steps=0)
    with Dashboard(tmp_path) as page:
        go(browser, page, "", "document.querySelector('h1')?.innerText.startsWith('demo') === true")
        assert "has not recorded a row yet" in text(browser, "main")
        assert "Nothing is committed yet" in text(browser, "main")
        with Recorder(
            tmp_path / "new", "demo", "classification", positions={"table_bytes": 0, "predictions_bytes": 0}
        ) as recorder:
            recorder.step(step_row(1))
            browser.wait(f"{PLOTS} > 0", 20)
        finish(tmp_path / "new", steps=1)
        browser.wait(f"{STATE} === 'finished'")
