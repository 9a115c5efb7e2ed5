"""The files in deploy/ with the real Prometheus: valid, and every expression answers for a real run."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lamina.continual import Run, parse_config, read_config
from lamina.continual.finite import DivergedError
from lamina.continual.watching import Watching
from lamina.monitoring import METRICS, EvaluationRow
from tiny_runs import STREAM, changed, write_config, write_log

DEPLOY = Path(__file__).parent.parent / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/lamina.json").read_text())
FASTER = 60  # the server under test lives an hour in a minute
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="needs prometheus and promtool: apt-get install prometheus",
)

LEARNER = {
    "momentum": 0.5,
    "memory": {
        "admission": "novelty",
        "novelty_threshold": 0.5,
        "capacity": 520,
        "eviction": "oldest",
        "prune_epsilon": 1e-9,
        "prune_every": 2,
        "initial_capacity": 128,
    },
}


def rules(name: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((DEPLOY / "rules" / name).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def panel_expressions() -> list[tuple[str, str]]:
    """Each panel's title and one of its expressions, with Grafana's variables filled in."""
    return [
        (panel["title"], target["expr"].replace("$run", ".*").replace("$__rate_interval", "1m"))
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]


def expressions() -> list[tuple[str, str]]:
    """Every expression that must answer: of panels, of recording rules, and what alerts compare."""
    found = panel_expressions()
    found += [(rule["record"], rule["expr"]) for rule in rules("recording.yml")]
    for rule in rules("alerts.yml"):
        compared = re.fullmatch(r"(.*) [<>] [\d.]+", rule["expr"])
        assert compared, f"{rule['alert']}: an alert compares one expression with one number"
        found.append((rule["alert"], compared[1]))
    return found


def faster(text: str) -> str:
    """PromQL or YAML with every duration a sixtieth, and the one number that is seconds."""
    shrunk = re.sub(
        r"\b(\d+)(h|m|s)\b",
        lambda found: f"{int(found[1]) * {'h': 3600, 'm': 60, 's': 1}[found[2]] * 1000 // FASTER}ms",
        text,
    )
    return shrunk.replace("+ 300 *", f"+ {300 // FASTER} *")


@dataclass(frozen=True)
class Server:
    """A Prometheus on the files of deploy/, faster."""

    url: str
    targets: Path

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result

    def firing(self) -> set[tuple[str, str]]:
        alerts = self.ask("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("run", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }


def wait_for(true: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules").mkdir()
    (folder / "targets").mkdir()
    for name in ("prometheus.yml", "rules/recording.yml", "rules/alerts.yml"):
        text = (DEPLOY / name).read_text()
        text = re.sub(r"_interval: 5s", "_interval: 12s", text)  # 200 ms: sixtieths of 5 s would be a lot
        (folder / name).write_text(faster(text))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        found = Server(f"http://127.0.0.1:{port}", folder / "targets")
        try:
            wait_for(lambda: answers(found), "Prometheus to start")
            yield found
        finally:
            process.terminate()


def answers(server: Server) -> bool:
    try:
        return server.ask("status/runtimeinfo")["startTime"] != ""
    except OSError:
        return False


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("config")
    stream = {**STREAM, "limit": 1400, "segment_length": 200}
    log = write_log(folder / "log", stream)
    path = write_config(folder / "config.yaml", stream=stream, log=str(log), learner=LEARNER, record_every=1)
    return read_config(path)


class Working:
    """A run that goes on in a thread, step by step, until the test has seen enough."""

    def __init__(self, config: dict[str, Any], folder: Path, targets: Path) -> None:
        self.run = Run.create(parse_config(config), folder, watching=Watching(port=0, targets=targets))
        self._seen = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        for phase, accuracy in (("earlier", 0.75), ("online", 0.5)):
            self.run.recorder.evaluation(EvaluationRow(1, 8, phase, "first", accuracy, 0.5, 64, 0.1))
        while not self._seen.wait(0.1) and not self.run.execute(1, quiet=True).finished:
            pass

    def close(self) -> None:
        self._seen.set()
        self._thread.join()
        self.run.close()


@needs_prometheus
@pytest.mark.timeout(180)
def test_every_expression_answers_alerts_fire_and_nothing_stale_stays(
    server: Server, config: dict[str, Any], tmp_path: Path
) -> None:
    named = config | {"name": "healthy"}
    working = Working(named, tmp_path / "healthy", server.targets)
    broken = Run.create(
        parse_config(changed(config, {"name": "broken", "learner": {"value_rate": 1e38}})),
        tmp_path / "broken",
        watching=Watching(port=0, targets=server.targets),
    )
    try:
        with pytest.raises(DivergedError):
            broken.execute(quiet=True)
        (server.targets / "lamina-1.json").write_text('[{"targets": ["127.0.0.1:1"]}]')  # killed
        left = expressions()

        def all_answer() -> bool:
            nonlocal left
            left = [(name, e) for name, e in left if not server.value(faster(e))]
            return not left

        try:
            wait_for(all_answer, "every expression to answer", 60)
        except AssertionError:
            pytest.fail(f"no answer for {left}")
        expected = {("LaminaFailed", "broken"), ("LaminaForgetting", "healthy"), ("LaminaRunGone", "")}
        wait_for(lambda: expected <= server.firing(), f"{expected} to fire; {server.firing()} does")
        assert ("LaminaFailed", "healthy") not in server.firing()
        runs = {row["metric"]["run"] for row in server.value("lamina_steps_total")}
        assert runs == {"healthy", "broken"}  # one machine's runs are told apart
        [entries] = server.value('lamina_memory_entries{run="healthy"}')
        wait_for(lambda: server.value("lamina_memory_entries"), "entries")
        assert 0 < float(entries["value"][1]) <= 520
    finally:
        working.close()
        broken.close()
    wait_for(
        lambda: not server.value('{__name__=~"lamina_.*"}') and not server.value("up{job='lamina'} == 1"),
        "the series of closed runs to end",
    )


@needs_prometheus
def test_promtool_finds_no_fault() -> None:
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules/tests.yml"]):
        done = subprocess.run(["promtool", *command], cwd=DEPLOY, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_promtool_likes_what_a_run_shows(config: dict[str, Any], tmp_path: Path) -> None:
    """Names, units, help texts, by Prometheus's own linter; `info` gauges and totals are among them."""
    with Run.create(parse_config(config), tmp_path / "run", metrics_port=0) as run:
        run.execute(4, quiet=True)
        page = urllib.request.urlopen(f"http://127.0.0.1:{run.metrics_port}/metrics", timeout=10).read()
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("lamina_")]
    assert lines == [], lines


def test_every_metric_has_a_place_on_the_dashboard_or_in_a_rule() -> None:
    text = " ".join(expression for _, expression in expressions())
    missing = [metric.name for metric in METRICS if metric.name not in text]
    # Shown as the ratio and as the age that belong to them; and what only texts have.
    assert missing == [
        "lamina_memory_capacity_entries",
        "lamina_held_out_attribute_loss",
        "lamina_last_commit_timestamp_seconds",
    ]


def test_rules_and_panels_name_only_what_exists() -> None:
    known = {metric.name for metric in METRICS} | {rule["record"] for rule in rules("recording.yml")}
    for name, expression in expressions():
        for used in re.findall(r"\blamina[a-z0-9_:]+", expression):
            assert re.sub(r"_(bucket|sum|count)$", "", used) in known, f"{name} uses {used}"


def test_every_panel_has_a_place_a_unit_and_a_source() -> None:
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_compose_mounts_what_is_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    for service in services.values():
        assert ":" in service["image"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).exists(), volume
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert sources["datasources"][0]["uid"] == "prometheus"
    [provider] = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/lamina.yml").read_text())[
        "providers"
    ]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
