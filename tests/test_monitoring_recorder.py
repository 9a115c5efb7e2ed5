"""The recorder and its sinks: what is recorded is what is shown, nothing is shown twice or for too long."""

import base64
import re
import socket
import threading
import time
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from lamina.errors import BusyError, ConfigError
from lamina.monitoring import (
    METRICS,
    EvaluationRow,
    Facts,
    LayerRow,
    PrometheusExporter,
    PushGateway,
    Recorder,
    StepRow,
    read_predictions,
    read_table,
    reproducible,
)
from lamina.monitoring import metrics as declared
from lamina.monitoring.live import Live
from lamina.monitoring.metrics import LABELS
from lamina.monitoring.rows import LAYER_COUNTS, STEP_PARTS
from prometheus_client.parser import text_string_to_metric_families


def step_row(step: int, **changes) -> StepRow:
    layers = {
        "block0": LayerRow(64 + step, 256, 256 * 40, step, 1, 2, 3, 4),
        "readout": LayerRow(step, 0, 0, step),
    }
    row = StepRow(
        step=step,
        examples=8 * step,
        offset=8 * step + 1,
        phase="online",
        prequential_accuracy=0.5 + step / 1000,
        window_accuracy=0.25,
        loss=2.0 / step,
        layers=layers,
        skipped_examples=1,
        compilations=3,
        wait_seconds=0.1,
        compute_seconds=0.2,
        append_seconds=0.3,
        maintain_seconds=0.4,
        evaluate_seconds=0.5,
        commit_seconds=0.6,
        wall_seconds=2.5,
        examples_per_second=32.0,
    )
    return replace(row, **changes)


def evaluation_row(step: int, task: str = "test", accuracy: float | None = 0.75) -> EvaluationRow:
    return EvaluationRow(step, 8 * step, "online", task, accuracy, 0.5, 100, 0.25)


def scrape(exporter: PrometheusExporter) -> dict[tuple[str, ...], float]:
    """Series by (name, label values in the order of their names), ours only."""
    url = f"http://127.0.0.1:{exporter.port}/metrics"
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("lamina_")
    }


@pytest.fixture
def exporter():
    exporter = PrometheusExporter()
    yield exporter
    exporter.close()


def test_a_snapshot_shows_its_moment():
    live = Live("a", 0.0, Facts())
    for step in (1, 2):
        live.take_step(step_row(step), float(step), None)
    live.take_evaluation(replace(evaluation_row(1, accuracy=0.9), phase="earlier"))
    live.take_evaluation(evaluation_row(2))
    live.take_distances("block0", [1.0])
    live.take_weights("block0", [[0.5]])
    snapshot, then = live.snapshot(), tuple(live.samples())
    live.take_step(step_row(3), 3.0, None)
    live.take_evaluation(replace(evaluation_row(3, accuracy=1.0), phase="between"))
    live.take_distances("block0", [2.0])
    live.take_weights("block0", [[0.25]])
    assert tuple(snapshot.samples()) == tuple(snapshot.samples()) == then != tuple(live.samples())


def test_declarations_keep_the_conventions():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"lamina_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert set(metric.labels) <= set(LABELS)
        assert metric.labels[0] == "run"
        assert metric.help.endswith(".")
        assert bool(metric.buckets) == (metric.kind in ("histogram", "snapshot"))
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert (metric.unit == "info") == metric.name.endswith("_info")
        if metric.unit in ("seconds", "bytes"):
            assert metric.unit in metric.name
    assert declared.MEMORY_ENTRIES.name == "lamina_memory_entries"
    assert declared.MEMORY_ENTRIES.labels == ("run", "layer")


def test_every_metric_is_recorded_and_equals_the_table(tmp_path, exporter):
    now = [1000.0]
    facts = Facts(4000, {"block0": 300}, {"block0": ("novelty", "oldest")}, ("0", "1"))
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter], clock=lambda: now[0], facts=facts)
    recorder.evaluation(replace(evaluation_row(20, accuracy=0.875), phase="first"))
    recorder.step(step_row(25))
    recorder.distances("block0", [0.25, 0.26, 4.0, 1e6])
    recorder.distances("block0", [0.3])
    recorder.weights("block0", [[7.0] * 9])
    recorder.weights("block0", [[1e-9, 1.0], [2.0]])  # takes the place of what was there
    now[0] = 1010.0
    recorder.step(step_row(50), lag=17)
    recorder.evaluation(evaluation_row(50))
    recorder.committed({"block0": 12345})
    recorder.failed(ArithmeticError("no"))
    series = scrape(exporter)
    shown = {re.sub(r"_(bucket|g?sum|g?count)$", "", name) for name, *_ in series}
    of_texts = {"lamina_held_out_attribute_loss"}
    assert shown == {metric.name for metric in METRICS} - of_texts

    row = read_table(tmp_path / "metrics.jsonl")[2]
    layer = row["layers"]["block0"]
    expected = {
        ("lamina_memory_entries", "block0", "r"): layer["entries"],
        ("lamina_memory_capacity_entries", "block0", "r"): layer["capacity"],
        ("lamina_memory_fill_ratio", "block0", "r"): layer["entries"] / layer["capacity"],
        ("lamina_memory_bytes", "block0", "r", "device"): layer["bytes"],
        ("lamina_memory_bytes", "block0", "r", "disk"): 12345,
        ("lamina_memory_device_bytes", "1", "block0", "r"): layer["bytes"] / 2,
        ("lamina_memory_limit_entries", "block0", "r"): 300,
        ("lamina_memory_policy_info", "block0", "admission novelty", "r"): 1,
        ("lamina_memory_policy_info", "block0", "eviction oldest", "r"): 1,
        ("lamina_memory_growth_entries_per_second", "block0", "r"): 10,  # 25 in the second row's 2.5 s
        ("lamina_memory_nearest_key_distance_bucket", "block0", "0.25", "r"): 1,
        ("lamina_memory_nearest_key_distance_bucket", "block0", "4.0", "r"): 4,
        ("lamina_memory_nearest_key_distance_count", "block0", "r"): 5,
        ("lamina_memory_nearest_key_distance_sum", "block0", "r"): pytest.approx(1000004.81),
        ("lamina_memory_effective_weight_bucket", "block0", "1e-06", "r"): 1,
        ("lamina_memory_effective_weight_bucket", "block0", "1.0", "r"): 2,
        ("lamina_memory_effective_weight_gcount", "block0", "r"): 3,
        ("lamina_memory_effective_weight_gsum", "block0", "r"): pytest.approx(3.0),
        ("lamina_forgetting_max_ratio", "r", "test"): 0.125,
        ("lamina_stream_examples", "r"): 4000,
        ("lamina_stream_lag_examples", "r"): 17,
        ("lamina_last_error_timestamp_seconds", "ArithmeticError", "r"): 1010.0,
        ("lamina_prequential_accuracy", "online", "r"): row["prequential_accuracy"],
        ("lamina_window_accuracy", "online", "r"): row["window_accuracy"],
        ("lamina_prequential_loss", "online", "r"): row["loss"],
        ("lamina_held_out_accuracy", "r", "test"): 0.75,
        ("lamina_held_out_loss", "r", "test"): 0.5,
        ("lamina_examples_total", "r"): row["examples"],
        ("lamina_steps_total", "r"): row["step"],
        ("lamina_skipped_examples_total", "r"): row["skipped_examples"],
        ("lamina_compilations_total", "r"): row["compilations"],
        ("lamina_wall_seconds_total", "r"): 5.0,
        ("lamina_last_step_timestamp_seconds", "r"): 1010.0,
        ("lamina_last_commit_timestamp_seconds", "r"): 1010.0,
        ("lamina_step_duration_seconds_sum", "r"): 0.1,  # 2.5 s for the 25 steps of the second row
        ("lamina_step_duration_seconds_bucket", "0.05", "r"): 0,
        ("lamina_step_duration_seconds_bucket", "0.1", "r"): 1,
        ("lamina_step_duration_seconds_bucket", "+Inf", "r"): 1,
        **{(f"lamina_memory_{name}_total", "block0", "r"): layer[name] for name in LAYER_COUNTS},
        **{
            (f"lamina_{part}_seconds_total", "r"): pytest.approx(2 * row[f"{part}_seconds"])
            for part in STEP_PARTS
        },
    }
    assert {key: series[key] for key in expected} == expected
    assert ("lamina_memory_fill_ratio", "readout", "r") not in series  # nothing allocated: no ratio
    recorder.close()


def test_null_values_have_no_series(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "regression", sinks=[exporter])
    row = step_row(5, prequential_accuracy=None, window_accuracy=float("nan"), loss=float("inf"))
    recorder.step(row)
    recorder.evaluation(evaluation_row(5, accuracy=None))
    names = {name for name, *_ in scrape(exporter)}
    assert "lamina_held_out_loss" in names
    assert not names & {
        "lamina_prequential_accuracy",
        "lamina_window_accuracy",
        "lamina_prequential_loss",
        "lamina_held_out_accuracy",
    }
    recorder.close()


def test_a_phase_that_ended_is_not_shown_any_more(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    recorder.step(step_row(5, phase="pretrain"))
    recorder.step(step_row(10, phase="finetune"))
    recorder.evaluation(evaluation_row(10, "a"))
    recorder.evaluation(evaluation_row(10, "b"))
    series = scrape(exporter)
    assert [key for key in series if key[0] == "lamina_prequential_accuracy"] == [
        ("lamina_prequential_accuracy", "finetune", "r")
    ]
    assert {key[2] for key in series if key[0] == "lamina_held_out_accuracy"} == {"a", "b"}
    recorder.close()


def test_series_do_not_grow_with_steps(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    recorder.step(step_row(1))
    recorder.step(step_row(2))
    few = len(scrape(exporter))
    for step in range(3, 40):
        recorder.step(step_row(step))
        recorder.evaluation(evaluation_row(step))
        recorder.committed()
    assert len(scrape(exporter)) == few + 3  # the task's accuracy and loss, and the commit's time
    recorder.close()


def test_commit_age_grows_between_records(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    recorder.committed()
    first = scrape(exporter)["lamina_commit_age_seconds", "r"]
    time.sleep(0.05)
    second = scrape(exporter)["lamina_commit_age_seconds", "r"]
    assert 0 <= first < second - 0.04 < first + 5
    recorder.committed()
    assert scrape(exporter)["lamina_commit_age_seconds", "r"] < second
    recorder.close()


def test_two_runs_in_one_process_do_not_mix(tmp_path):
    exporters = [PrometheusExporter(), PrometheusExporter()]
    recorders = []
    for number, exporter in enumerate(exporters):
        folder = tmp_path / str(number)
        folder.mkdir()
        recorders.append(Recorder(folder, f"run{number}", "classification", sinks=[exporter]))
        recorders[-1].step(step_row(10 + number))
    for number, exporter in enumerate(exporters):
        series = scrape(exporter)
        assert series["lamina_steps_total", f"run{number}"] == 10 + number
        assert not [key for key in series if f"run{1 - number}" in key]
    for recorder in recorders:
        recorder.close()


def test_a_run_after_a_run_leaves_nothing_stale_and_reuses_the_port(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    exporter = PrometheusExporter()
    registry, port = exporter.registry, exporter.port
    recorder = Recorder(first, "first", "classification", sinks=[exporter])
    recorder.step(step_row(10))
    recorder.close()
    recorder.close()
    assert [family.name for family in registry.collect() if family.name.startswith("lamina_")] == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    exporter = PrometheusExporter(port)
    recorder = Recorder(second, "second", "classification", sinks=[exporter])
    assert {key[-1] for key in scrape(exporter)} == {"second"}
    recorder.close()


def test_busy_port_is_one_line(exporter):
    with pytest.raises(BusyError, match=rf"^metrics port {exporter.port} is in use by another program; .*$"):
        PrometheusExporter(exporter.port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_out_of_range(port):
    with pytest.raises(ConfigError, match=rf"^metrics port {port}: expected 0 .* to 65535$"):
        PrometheusExporter(port)


def test_only_loopback_is_served(exporter):
    assert exporter._server.server_address[0] == "127.0.0.1"


def test_a_hanging_client_blocks_neither_the_loop_nor_others(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    with socket.create_connection(("127.0.0.1", exporter.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
        recorder.step(step_row(5))
        assert scrape(exporter)["lamina_steps_total", "r"] == 5
        recorder.close()


def test_scrapes_while_recording_see_whole_rows(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    recorder.step(step_row(1))
    seen = []
    stop = threading.Event()

    def scrape_on() -> None:
        while not stop.is_set():
            series = scrape(exporter)
            seen.append((series["lamina_steps_total", "r"], series["lamina_examples_total", "r"]))

    thread = threading.Thread(target=scrape_on)
    thread.start()
    step = 1
    while len(seen) < 10 and step < 100_000:
        step += 1
        recorder.step(step_row(step))
    stop.set()
    thread.join()
    assert seen == sorted(seen)
    assert all(examples == 8 * steps for steps, examples in seen)
    recorder.close()


def record(recorder: Recorder, start: int, stop: int) -> None:
    for step in range(start, stop):
        recorder.predictions([step, step + 1], [0, 1], [0, step % 2], [0.5, 1 / (step + 1)])
        if step % 3 == 2:
            recorder.step(step_row(step + 1, wall_seconds=time.perf_counter()))
        if step % 5 == 4:
            recorder.evaluation(evaluation_row(step + 1))


@pytest.mark.parametrize("committed", range(0, 21, 4))
def test_resumed_at_every_commit_equals_uninterrupted(tmp_path, committed):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    with Recorder(whole, "r", "classification") as recorder:
        record(recorder, 0, 20)
    with Recorder(parts, "r", "classification") as recorder:
        record(recorder, 0, committed)
        positions = recorder.sync()
        record(recorder, committed, min(committed + 3, 20))
    with Recorder(parts, "r", "classification", positions=positions) as recorder:
        assert recorder.dropped.examples == 2 * (min(committed + 3, 20) - committed)
        record(recorder, committed, 20)
    one, other = (
        [reproducible(row) for row in read_table(folder / "metrics.jsonl")] for folder in (whole, parts)
    )
    assert one == other
    assert len(one) == 10
    assert read_predictions(whole).tobytes() == read_predictions(parts).tobytes()


def test_columns_of_the_table(tmp_path):
    with Recorder(tmp_path, "r", "classification") as recorder:
        recorder.step(step_row(1))
        recorder.evaluation(evaluation_row(1))
    step, evaluation = read_table(tmp_path / "metrics.jsonl")
    assert set(reproducible(step)) == {
        "kind",
        "step",
        "drifts",
        "examples",
        "offset",
        "phase",
        "prequential_accuracy",
        "window_accuracy",
        "loss",
        "layers",
        "skipped_examples",
        "compilations",
    }
    assert set(step) - set(reproducible(step)) == {
        *(f"{part}_seconds" for part in STEP_PARTS),
        "wall_seconds",
        "examples_per_second",
    }
    sizes = {"entries", "capacity", "bytes", "cold_entries", "cold_bytes", "pruning_bound"}
    assert set(step["layers"]["block0"]) == {*sizes, *LAYER_COUNTS}
    assert evaluation == {
        "kind": "evaluation",
        "step": 1,
        "examples": 8,
        "phase": "online",
        "task": "test",
        "accuracy": 0.75,
        "loss": 0.5,
        "evaluated_examples": 100,
        "evaluation_seconds": 0.25,
    }


def test_forgetting_and_evaluations_survive_a_resume(tmp_path, exporter):
    """Held-out figures of an earlier process are read back from the table, without its other rows."""
    with Recorder(tmp_path, "r", "classification") as recorder:
        for phase, accuracy in (("a", 0.5), ("a", 0.875), ("b", 0.75)):
            recorder.step(step_row(5, phase=phase))
            recorder.evaluation(replace(evaluation_row(5, "first", accuracy), phase=phase))
        positions = recorder.sync()
        recorder.evaluation(replace(evaluation_row(6, "first", 0.0), phase="b"))  # dropped by the resume
    with Recorder(tmp_path, "r", "classification", positions=positions, sinks=[exporter]):
        series = scrape(exporter)
        assert series["lamina_held_out_accuracy", "r", "first"] == 0.75
        assert series["lamina_forgetting_max_ratio", "r", "first"] == 0.125  # the last of a phase counts


def test_lingering_ends_with_the_next_scrape(tmp_path, exporter):
    recorder = Recorder(tmp_path, "r", "classification", sinks=[exporter])
    recorder.step(step_row(5))
    scrape(exporter)
    begin = time.monotonic()
    assert not exporter.linger(0.05)  # what was read before does not count
    thread = threading.Timer(0.05, scrape, [exporter])
    thread.start()
    assert exporter.linger(60)
    assert time.monotonic() - begin < 30
    thread.join()
    recorder.close()


class Gateway(ThreadingHTTPServer):
    """Notes what is put to it."""

    def __init__(self, code: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Put)
        self.code, self.puts = code, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Put(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.puts.append((self.path, body))
        self.send_response(self.server.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway():
    gateway = Gateway()
    yield gateway
    gateway.shutdown()
    gateway.server_close()


def test_a_short_run_leaves_its_last_figures_at_the_push_gateway(tmp_path, gateway):
    push = PushGateway(gateway.url, tmp_path)
    with Recorder(tmp_path, "r", "classification", sinks=[push]) as recorder:
        recorder.step(step_row(5))
        recorder.committed()
    push.close()
    [(path, body)] = gateway.puts  # it was shorter than the time between two pushes
    group = base64.urlsafe_b64encode(f"{socket.gethostname()}:{tmp_path}".encode()).decode()
    assert path == f"/metrics/job/lamina/instance@base64/{group}"
    assert 'lamina_steps_total{run="r"} 5.0' in body
    assert "lamina_commit_age_seconds{" not in body  # it would stand still
    assert "lamina_last_commit_timestamp_seconds{" in body


def test_pushes_go_on_while_the_run_does(tmp_path, gateway):
    push = PushGateway(gateway.url, tmp_path, every_seconds=0.01)
    with Recorder(tmp_path, "r", "classification", sinks=[push]) as recorder:
        for step in range(1, 500):
            recorder.step(step_row(step))
            if [body for _, body in list(gateway.puts) if "lamina_commit_age_seconds{" in body][2:]:
                break  # three of them, each with an age, which the last push leaves out
            time.sleep(0.01)
        else:
            pytest.fail("no three pushes on the way")


@pytest.mark.parametrize("kind", ["refuses", "absent"])
def test_a_push_gateway_that_does_not_take_costs_one_warning(tmp_path, gateway, kind):
    gateway.code = 400
    if kind == "absent":
        gateway.server_close()
    lines = []
    push = PushGateway(gateway.url, tmp_path, every_seconds=0.01, warn=lines.append)
    with Recorder(tmp_path, "r", "classification", sinks=[push]) as recorder:
        recorder.step(step_row(5))
        time.sleep(0.1)
    [line] = lines
    assert line.startswith(f"the push gateway {gateway.url} did not take the metrics: ")
    assert "\n" not in line


@pytest.mark.parametrize("url", ["", "127.0.0.1:9091", "ftp://host", "http://"])
def test_push_gateways_are_urls(tmp_path, url):
    with pytest.raises(ConfigError, match=rf"^push gateway {url}: expected the URL of a Pushgateway"):
        PushGateway(url, tmp_path)
