"""What a run shows while it lasts, beside its table: distances, weights, lag, time of pruning, failures."""

import json
import math
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from lamina.continual import Run, loop, parse_config, read_config
from lamina.continual.effective import effective_weights
from lamina.continual.finite import DivergedError
from lamina.continual.watching import Watching
from lamina.monitoring import inspect_run, read_table
from prometheus_client.parser import text_string_to_metric_families
from tiny_runs import STREAM, command, refused, write_config, write_log

CAPPED = {
    "momentum": 0.5,
    "decay": 0.01,
    "memory": {
        "admission": "novelty",
        "novelty_threshold": 0.5,
        "capacity": 64,
        "eviction": "smallest",
        "prune_epsilon": 1e-3,
        "prune_every": 4,
    },
}


def series(port: int) -> dict[tuple[str, ...], float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return {
        (
            sample.name,
            *(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "run"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("lamina_")
    }


@pytest.fixture
def config(tmp_path: Path) -> Path:
    log = write_log(tmp_path / "log", STREAM)
    return write_config(tmp_path / "config.yaml", log=str(log), learner=CAPPED)


def test_a_run_shows_what_it_measures(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "WEIGH_SHARE", math.inf)  # entries are weighed with every row
    run_dir = tmp_path / "run"
    with Run.create(parse_config(read_config(config)), run_dir, metrics_port=0) as run:
        run.execute(9, quiet=True)
        shown = series(run.metrics_port)
        sizes = np.concatenate([*effective_weights(run.state.memories["readout"])])
        bounds = np.array([1e-3, 3e-2, 1e-1])
    layer = ("layer=readout",)
    row = [row for row in read_table(run_dir / "metrics.jsonl") if row["kind"] == "step"][-1]
    inspected = inspect_run(run_dir)["layers"]["readout"]
    assert shown["lamina_memory_entries", *layer] == row["layers"]["readout"]["entries"] == len(sizes)
    assert shown["lamina_memory_bytes", *layer, "tier=device"] == row["layers"]["readout"]["bytes"]
    assert shown["lamina_memory_bytes", *layer, "tier=disk"] == inspected["disk_bytes"]
    assert shown["lamina_memory_limit_entries", *layer] == 64
    assert shown["lamina_memory_policy_info", *layer, "policy=eviction smallest"] == 1
    assert shown["lamina_memory_nearest_key_distance_count", *layer] == 72  # one of each example
    assert shown["lamina_memory_effective_weight_gcount", *layer] == len(sizes)
    for bound in bounds:
        assert shown["lamina_memory_effective_weight_bucket", *layer, f"le={bound}"] == np.sum(sizes <= bound)
    assert (shown["lamina_stream_examples",], shown["lamina_stream_lag_examples",]) == (96, 24)
    assert shown["lamina_maintain_seconds_total",] > 0
    parts = sum(shown[f"lamina_{part}_seconds_total",] for part in ("compute", "append", "maintain"))
    assert parts < shown["lamina_wall_seconds_total",]


def test_effective_weights_are_those_of_the_formula(config: Path, tmp_path: Path) -> None:
    """Σ over a step's momentum and decay, by the closed form of a constant rate (Eq. 100)."""
    with Run.create(parse_config(read_config(config)), tmp_path / "run") as run:
        run.execute(3, quiet=True)
        memory = run.state.memories["readout"]
        database = memory.database
        created, norms = database.column("created"), database.column("value_norms")
        found = np.concatenate([*effective_weights(memory)])
        momentum, decay, expected = 0.5, 0.01, []
        for step, norm in zip(created, norms, strict=True):
            if step > 0:
                velocity, coefficient = 1.0, 1.0
                for _ in range(run.state.step - step):
                    velocity *= momentum
                    coefficient = (1 - decay) * coefficient + velocity
                expected.append(coefficient * norm)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_failure_is_shown_by_its_kind(config: Path, tmp_path: Path) -> None:
    values = read_config(config)
    values["learner"] |= {"value_rate": 1e38}
    with Run.create(parse_config(values), tmp_path / "run", metrics_port=0) as run:
        with pytest.raises(DivergedError):
            run.execute(quiet=True)
        assert series(run.metrics_port)["lamina_last_error_timestamp_seconds", "kind=DivergedError"] > 1e9


def test_lag_counts_what_is_written_without_a_gap(config: Path, tmp_path: Path) -> None:
    with Run.create(parse_config(read_config(config)), tmp_path / "run") as run:
        assert run.reader.lag() == 96
        run.execute(5, quiet=True)
        assert run.reader.lag() == 56
        last = run.reader.log.segment_path(2)
        last.rename(last.with_suffix(".away"))
        assert run.reader.lag() == 24
        last.with_suffix(".away").rename(last)
        run.execute(quiet=True)
        assert run.reader.lag() == 0


def test_a_run_is_found_by_its_target_file_while_it_is_open(config: Path, tmp_path: Path) -> None:
    targets = tmp_path / "targets"
    targets.mkdir()
    with Run.create(
        parse_config(read_config(config)), tmp_path / "run", watching=Watching(port=0, targets=targets)
    ) as run:
        [file] = targets.iterdir()
        assert json.loads(file.read_text()) == [{"targets": [f"127.0.0.1:{run.metrics_port}"]}]
    assert list(targets.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--metrics-targets", "here"), ("metrics targets", "--metrics-port")),
        (("--metrics-targets", "nowhere", "--metrics-port", "0"), ("metrics targets nowhere", "make it")),
        (("--push-gateway", "localhost:9091"), ("push gateway localhost:9091", "http://127.0.0.1:9091")),
        (("--metrics-linger", "0"), ("--metrics-linger", "above 0")),
    ],
)
def test_mistakes_are_refused(
    config: Path, tmp_path: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(command("run", config, "--run-dir", tmp_path / "run", *options), *parts)
    assert not (tmp_path / "run").exists()


def test_the_command_lingers_until_the_end_was_read(config: Path, tmp_path: Path) -> None:
    targets = tmp_path / "targets"
    targets.mkdir()
    seen = []

    def scrape() -> None:
        while not (files := list(targets.glob("*.json"))):
            time.sleep(0.01)
        port = int(json.loads(files[0].read_text())[0]["targets"][0].partition(":")[2])
        while not (tmp_path / "run" / "report.html").exists():
            time.sleep(0.01)
        time.sleep(0.2)  # the command waits now
        seen.append(series(port)["lamina_examples_total",])

    thread = threading.Thread(target=scrape)
    thread.start()
    options = ("--metrics-port", 0, "--metrics-targets", targets, "--metrics-linger", 60)
    begin = time.monotonic()
    assert command("run", config, "--run-dir", tmp_path / "run", "--quiet", *options).code == 0
    assert time.monotonic() - begin < 50
    thread.join()
    assert seen == [96]
