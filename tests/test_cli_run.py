"""Runs from beginning to end on the command line, and what they leave behind."""

import csv
import json
import shutil
import urllib.request
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
import zarr
from lamina.continual import Origin, Run, parse_config, read_config
from lamina.learners.conformance import shipped_files
from lamina.memory import Store
from lamina.monitoring import read_predictions, read_table
from lamina.monitoring.text import size_text
from lamina.stream import StreamConfig, open_source
from made_runs import report_document
from PIL import Image
from tiny_runs import (
    STREAM,
    command,
    contents,
    fingerprint,
    refused,
    saved_progress,
    write_config,
    write_log,
)

LEARNER = {
    "kind": "softmax",
    "blocks": 1,
    "temperature": 2,
    "value_rate": 0.3,
    "weight_rate": 0.03,
    "momentum": 0.5,
    "memory": {
        "initial_capacity": 32,
        "capacity": 64,
        "eviction": "smallest",
        "admission": "novelty",
        "novelty_threshold": 2,
        "prune_epsilon": 0.02,
        "prune_every": 5,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    return write_config(folder / "config.yaml", log=str(write_log(folder / "log", STREAM)))


@pytest.fixture(scope="module")
def finished(config: Path, folder: Path) -> Path:
    """A run that is done; no test changes it."""
    assert command("run", config, "--run-dir", folder / "finished", "--quiet").code == 0
    return folder / "finished"


@pytest.fixture(scope="module")
def rich(config: Path, folder: Path) -> Path:
    """A finished run in which entries are rejected, evicted and pruned, in two layers."""
    run = folder / "rich"
    answer = command("run", config, "--run-dir", run, "--set", f"learner={json.dumps(LEARNER)}")
    assert answer.code == 0
    (folder / "rich.txt").write_text(answer.out)
    return run


def test_a_run_is_the_same_for_the_same_seed_and_config(config: Path, finished: Path, tmp_path: Path) -> None:
    printed = command("run", config, "--print-config").out
    (tmp_path / "printed.yaml").write_text(printed)
    assert command("run", tmp_path / "printed.yaml", "--run-dir", tmp_path / "again", "--quiet").code == 0
    assert contents(tmp_path / "again") == contents(finished)
    assert (tmp_path / "again" / "config.yaml").read_text() == printed


def test_another_seed_gives_another_order(config: Path, finished: Path, tmp_path: Path) -> None:
    write_log(tmp_path / "log", STREAM, seed=1)
    options = ("--seed", 1, "--set", f"log={tmp_path / 'log'}")
    summary = command("run", config, "--run-dir", tmp_path / "run", *options, "--json").json()["summary"]
    assert summary["seed"] == 1
    ours, theirs = read_predictions(tmp_path / "run"), read_predictions(finished)
    assert ours["origin"].tolist() == theirs["origin"].tolist() == list(range(96))
    assert (ours["label"] != theirs["label"]).mean() > 0.5
    answer = command("run", config, "--run-dir", tmp_path / "b", "--seed", 1)
    refused(answer, "another stream", "seed is 0, not 1")  # the log of the other order


def test_double_precision_is_kept_to_its_run(config: Path, finished: Path, tmp_path: Path) -> None:
    double = ("run", config, "--set", "precision=float64", "--quiet", "--run-dir")
    assert command(*double, tmp_path / "double").code == 0
    assert command("run", config, "--run-dir", tmp_path / "single", "--quiet").code == 0
    assert contents(tmp_path / "single") == contents(finished)
    with Store.open(tmp_path / "double" / "memory") as store:
        assert store.generation().tables["readout"].read("values", 0, 1).dtype == np.float64
    losses = [read_predictions(tmp_path / name)["loss"] for name in ("single", "double")]
    assert 0 < np.abs(losses[0] - losses[1]).max() < 1e-4


def test_runs_that_are_open_at_once_keep_their_precision(
    config: Path, finished: Path, tmp_path: Path
) -> None:
    values = read_config(config)
    with (
        Run.create(parse_config(values), tmp_path / "single") as single,
        Run.create(parse_config(values | {"precision": "float64"}), tmp_path / "double") as double,
    ):
        for run in (single, double, single, double):
            run.execute(6, quiet=True)
        assert single.execute(quiet=True).finished
    assert contents(tmp_path / "single") == contents(finished)


def test_a_run_in_portions_is_the_same_run(config: Path, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = command("run", config, "--run-dir", run, "--steps", 5, "--json").json()
    assert first == {
        "run_dir": str(run),
        "finished": False,
        "examples": 40,
        "steps": 5,
        "repeated_steps": 0,
    }
    assert not (run / "summary.json").exists()
    second = command("resume", run, "--steps", 2)
    assert (
        second.out == f"stopped after 56 examples; everything is committed\ngo on with: lamina resume {run}\n"
    )
    third = command("resume", run, "--steps", 100, "--json").json()
    assert (third["finished"], third["steps"], third["examples"]) == (True, 12, 96)
    assert contents(run) == contents(finished)


def test_resuming_a_finished_run_says_so_and_changes_nothing(finished: Path) -> None:
    before = fingerprint(finished)
    answer = command("resume", finished)
    assert "finished already" in answer.err
    assert "prequential accuracy" in answer.out
    quiet = command("resume", finished, "--quiet", "--steps", 3)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert command("resume", finished, "--json").json()["summary"] == json.loads(
        (finished / "summary.json").read_text()
    )
    assert _inodes_and_bytes(fingerprint(finished)) == _inodes_and_bytes(before)


def _inodes_and_bytes(found: dict[str, tuple[int, int, bytes]]) -> dict[str, tuple[int, bytes]]:
    return {name: (inode, content) for name, (inode, _, content) in found.items() if name != ".lock"}


def test_folders_are_named_after_the_run(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = command("run", config, "--set", "stream.limit=95")
    refused(bad, "another stream")
    for name in ("tiny", "tiny-2", "tiny-3"):  # what failed left no folder
        done = command("run", config, "--steps", 1, "--json").json()
        assert done["run_dir"] == f"runs/{name}"


def test_a_summary_holds_what_machines_look_for(rich: Path) -> None:
    summary = json.loads((rich / "summary.json").read_text())
    assert (summary["examples"], summary["steps"], summary["seed"], summary["skipped_examples"]) == (
        96,
        12,
        0,
        0,
    )
    predictions = read_predictions(rich)
    right = predictions["label"] == predictions["prediction"]
    assert summary["prequential_accuracy"] == right.mean()
    evaluation = [row for row in read_table(rich / "metrics.jsonl") if row["kind"] == "evaluation"][-1]
    assert (summary["test_accuracy"], summary["loss"]) == (evaluation["accuracy"], evaluation["loss"])
    assert evaluation["evaluated_examples"] == 359  # all of them, at the end
    assert 0 < summary["step_seconds"]["p50"] <= summary["step_seconds"]["p95"] < summary["wall_seconds"]
    assert summary["peak_rss_bytes"] > 10**8
    assert 1 <= summary["compilations"] <= 6
    assert {"python", "lamina", "jax", "numpy", "zarr"} <= set(summary["versions"])
    for layer in summary["layers"].values():
        assert set(layer) == {
            *("entries", "capacity", "bytes", "cold_entries", "cold_bytes", "pruning_bound"),
            *("admitted", "merged", "rejected", "pruned", "evicted"),
        }
        initial = 8
        gone = layer["pruned"] + layer["evicted"]
        assert layer["entries"] == initial + layer["admitted"] - gone <= layer["capacity"] <= 64
        assert layer["admitted"] + layer["rejected"] == 96
    totals = {
        n: sum(layer[n] for layer in summary["layers"].values()) for n in ("rejected", "pruned", "evicted")
    }
    assert all(totals.values())  # each happened, else the sums above mean little


def test_summary_inspection_report_and_plain_zarr_agree(rich: Path, folder: Path) -> None:
    summary = json.loads((rich / "summary.json").read_text())
    found = command("inspect", rich, "--deep", "--json").json()
    assert found["problems"] == []
    assert (found["state"], found["step"], found["examples"], found["offset"]) == ("finished", 12, 96, 96)
    assert found["summary"] == summary
    assert found["predictions"] == 96
    assert found["config"] == yaml.safe_load((rich / "config.yaml").read_text())
    generation = rich / "memory" / "generations" / f"{found['generation']:09d}"
    page = report_document(rich / "report.html")
    text = command("inspect", rich).out
    for name, layer in summary["layers"].items():
        table = zarr.open_group(generation / "tables" / name, mode="r")
        alive = table["alive"][:] == 1
        assert alive.sum() == layer["entries"] == found["layers"][name]["entries"]
        assert {column: found["layers"][name][column] for column in layer} == layer
        # every count of the entries' ages, from the arrays
        ages = 12 - table["created"][:][alive]
        histogram = found["layers"][name]["ages"]
        assert histogram["counts"] == np.histogram(ages, histogram["edges"])[0].tolist()
        assert sum(found["layers"][name]["key_norms"]["counts"]) == layer["entries"]
        row = table["keys"].dtype.itemsize * (table["keys"].shape[1] + table["values"].shape[1] + 3) + 3 * 4
        assert layer["bytes"] == layer["capacity"] * row  # and weights, two norms; created, origin, changed
        cells = [name, str(layer["entries"]), "8", str(layer["capacity"]), size_text(layer["bytes"])]
        cells += [size_text(found["layers"][name]["disk_bytes"])]
        cells += [str(layer[n]) for n in ("admitted", "merged", "rejected", "pruned", "evicted")]
        assert cells in page["layers"]["rows"]
        printed = next(line.split() for line in text.splitlines() if line.split()[:1] == [name])
        assert printed[:2] == [name, str(layer["entries"])]
    for figure in (summary["prequential_accuracy"], summary["test_accuracy"]):
        shown = f"{figure:.4f}"
        assert shown in {value for _, value, _ in page["figures"]}
        assert shown in text
        assert shown in (folder / "rich.txt").read_text()


def test_a_damaged_memory_is_found(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    chunk = next((run / "memory" / "generations").rglob("values/c.0.0"))
    content = bytearray(chunk.read_bytes())
    content[5] ^= 1
    chunk.write_bytes(content)
    assert command("inspect", run, "--json").json()["problems"] == []  # names and sizes are right
    deep = command("inspect", run, "--deep", "--json")
    assert deep.code == 1
    assert "values/c.0.0" in json.loads(deep.out)["problems"][0]
    chunk.write_bytes(content[:-4])
    refused(command("resume", run), "values/c.0.0", "restore", code=1)


def test_two_runs_serve_their_metrics_one_after_another(config: Path, tmp_path: Path) -> None:
    served = []
    port = 0
    for name in ("one", "two"):
        values = read_config(config) | {"name": name}
        with Run.create(parse_config(values), tmp_path / name, metrics_port=port) as run:
            run.execute(6 if name == "one" else 3, quiet=True)
            port = run.metrics_port
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            served.append([line for line in page.splitlines() if line.startswith("lamina_memory_entries{")])
    assert served == [
        ['lamina_memory_entries{layer="readout",run="one"} 48.0'],
        ['lamina_memory_entries{layer="readout",run="two"} 24.0'],
    ]
    answer = command("resume", tmp_path / "one", "--metrics-port", port)
    assert f"http://127.0.0.1:{port}/metrics" in answer.err
    assert answer.code == 0


def test_a_run_starts_from_another_ones_memory(config: Path, finished: Path, tmp_path: Path) -> None:
    before, run = fingerprint(finished / "memory"), tmp_path / "run"
    write_log(tmp_path / "log", STREAM | {"limit": 48}, seed=5)
    settings = ["stream.limit=48", "stream.seed=5", f"log={tmp_path / 'log'}", "learner.temperature=4"]
    options = [word for setting in settings for word in ("--set", setting)]
    first = command(
        "run", config, "--from", finished, "--run-dir", run, *options, "--steps", 2, "--json"
    ).json()
    assert (first["examples"], first["steps"]) == (16, 14)  # its own examples, after the steps of the other
    with Store.open(run / "memory") as store, store.generation() as generation:
        table = generation.tables["readout"]
        assert (table.rows, table.alive().sum()) == (112, 112)
        assert set(table.read("created").tolist()) == set(range(1, 15))
    second = command("resume", run, "--json").json()
    assert (second["examples"], second["steps"], second["finished"]) == (48, 18, True)
    assert second["summary"]["layers"]["readout"]["admitted"] == 48
    assert second["summary"]["layers"]["readout"]["entries"] == 144
    assert fingerprint(finished / "memory") == before


def _shared_files(one: Path, other: Path) -> list[str]:
    inodes = {path.stat().st_ino for path in (one / "memory").rglob("*") if path.is_file()}
    return [str(p) for p in (other / "memory").rglob("*") if p.is_file() and p.stat().st_ino in inodes]


def test_a_memory_is_shared_not_copied_and_taken_from_any_tag(
    config: Path, finished: Path, tmp_path: Path
) -> None:
    values = parse_config(read_config(config))
    with Run.create(values, tmp_path / "parent") as parent:
        parent.execute(3, quiet=True)
        parent.commit("early")
        parent.execute(quiet=True)
    found = {}
    for at in ("@early", "@3", "@end", "@12", ""):
        run = tmp_path / f"from{at}"
        name = f"{tmp_path / 'parent'}{at}"
        assert command("run", config, "--from", name, "--run-dir", run, "--steps", 1, "--quiet").code == 0
        found[at] = saved_progress(run), (run / "predictions.bin").read_bytes()
        with Store.open(run / "memory") as store:
            assert store.head.step == (4 if at in ("@early", "@3") else 13)
            assert store.tags() == {}
    assert found["@early"][1] == found["@3"][1] != found[""][1] == found["@end"][1] == found["@12"][1]
    # before anything new is learnt, every byte of the entries is the parent's
    with Run.create(values, tmp_path / "still", origin=Origin(tmp_path / "parent")):
        shared = _shared_files(tmp_path / "parent", tmp_path / "still")
        assert {name.rsplit("readout/", 1)[-1] for name in shared if "readout/" in name} >= {
            f"{column}/c.0{'.0' if column in ('keys', 'values') else ''}"
            for column in (
                "keys",
                "values",
                "created",
                "origin",
                "changed",
                "key_norms",
                "value_norms",
                "slot",
            )
        }
    for at, part in (("@99", "found 99"), ("@late", "found 'late'")):
        answer = command("run", config, "--from", f"{finished}{at}", "--run-dir", tmp_path / "no")
        refused(answer, "end (step 12)", "head (step 12)", part)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (["learner.blocks=1"], ("layers ['block0', 'readout']", "found ['readout']")),
        (["precision=float64"], ("layer readout", "float64", "float32")),
        ([f"learner={json.dumps(LEARNER | {'blocks': 0})}"], ("layer readout", "True", "False")),
        (["learner={kind: mlp}"], ("layers []", "found ['readout']")),
        (["stream.classes=11"], ("layer readout", "(64, 11,", "found (64, 10,")),
        (["learner.memory.capacity=50"], ("layer readout holds 96 entries", "at most the 50")),
    ],
)
def test_a_memory_of_another_shape_is_refused(
    settings: list[str], parts: tuple[str, ...], config: Path, finished: Path, tmp_path: Path
) -> None:
    if settings == ["stream.classes=11"]:
        log = write_log(tmp_path / "log", STREAM | {"classes": 11})
        settings = [*settings, f"log={log}"]
    options = [word for setting in settings for word in ("--set", setting)]
    before = fingerprint(finished)
    refused(command("run", config, "--from", finished, "--run-dir", tmp_path / "run", *options), *parts)
    assert not (tmp_path / "run").exists()
    assert fingerprint(finished) == before


def test_parameters_of_another_shape_are_refused(config: Path, tmp_path: Path) -> None:
    learner = {"kind": "mlp", "blocks": 1, "width": 8}
    parent = ("run", config, "--run-dir", tmp_path / "parent", "--set", f"learner={json.dumps(learner)}")
    assert command(*parent, "--steps", 2, "--quiet").code == 0
    for other in ({"width": 9}, {"optimiser": "sgd"}):
        settings = f"learner={json.dumps(learner | other)}"
        answer = command(
            "run", config, "--from", tmp_path / "parent", "--run-dir", tmp_path / "run", "--set", settings
        )
        refused(answer, "expected parameters and an optimiser of", "float32[64, ", "optimiser and precision")
    options = ("--set", f"learner={json.dumps(learner)}", "--set", "precision=float64")
    answer = command("run", config, "--from", tmp_path / "parent", "--run-dir", tmp_path / "run", *options)
    refused(answer, "float64[", "float32[")


def test_momentum_may_begin_and_end_with_a_new_run(config: Path, finished: Path, tmp_path: Path) -> None:
    """A function learnt without momentum is the start of one learnt with it, and the other way round."""
    begins, ends = tmp_path / "begins", tmp_path / "ends"
    on = ("--set", "learner.momentum=0.9", "--set", "learner.decay=0.1")
    assert (
        command("run", config, "--from", finished, "--run-dir", begins, *on, "--steps", 1, "--quiet").code
        == 0
    )
    plain = ("run", config, "--from", finished, "--run-dir", tmp_path / "plain", "--steps", 1, "--quiet")
    assert command(*plain).code == 0
    first = [read_predictions(run)["loss"] for run in (begins, tmp_path / "plain")]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-5)
    assert command("resume", begins, "--quiet").code == 0
    off = ("run", config, "--from", begins, "--run-dir", ends, "--steps", 1, "--quiet")
    assert command(*off).code == 0
    kept = ("run", config, "--from", begins, "--run-dir", tmp_path / "kept", *on, "--steps", 1, "--quiet")
    assert command(*kept).code == 0
    later = [read_predictions(run)["loss"] for run in (ends, tmp_path / "kept")]
    np.testing.assert_array_equal(later[0], later[1])
    assert np.abs(first[0] - later[0]).max() > 1e-3
    assert command("resume", ends, "--quiet").code == 0


def test_a_regression_runs_to_its_end(tmp_path: Path) -> None:
    stream = {"source": "teacher_student", "limit": 200, "teacher": {"inputs": 6, "width": 8, "outputs": 3}}
    learner = {"blocks": 0, "temperature": 1, "value_rate": 0.2}
    path = write_config(
        tmp_path / "config.yaml",
        stream=stream,
        learner=learner,
        log=str(write_log(tmp_path / "log", stream)),
        evaluation={"examples": None},
    )
    answer = command("run", path, "--run-dir", tmp_path / "run")
    refused(answer, "'test' of teacher_student has no end", "evaluation.examples", "null")
    done = command(
        "run", path, "--run-dir", tmp_path / "run", "--set", "evaluation.examples=50", "--json"
    ).json()
    summary = done["summary"]
    assert (summary["examples"], summary["prequential_accuracy"], summary["test_accuracy"]) == (
        200,
        None,
        None,
    )
    losses = read_predictions(tmp_path / "run")["loss"]
    assert losses[150:].mean() < 0.5 * losses[:16].mean()
    assert 0 < summary["loss"] < 0.5 * losses[:16].mean()  # on held-out data
    assert "accuracy" not in command("resume", tmp_path / "run").out
    assert command("inspect", tmp_path / "run", "--json").json()["problems"] == []
    assert (tmp_path / "run" / "report.html").exists()


def test_a_csv_file_runs_to_its_end(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    with open(tmp_path / "flowers.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["width", "height", "kind"])
        for x in draw.normal(size=(120, 2)):
            rows.writerow([*x.round(4), "tall" if x[1] > x[0] else "broad"])
    stream = {
        "source": f"files:{tmp_path}/*.csv",
        "features": ["width", "height"],
        "target": "kind",
        "classes": ["tall", "broad"],
        "standardise": "running",
    }
    path = write_config(
        tmp_path / "config.yaml",
        stream=stream,
        log=str(write_log(tmp_path / "log", stream)),
        learner={"temperature": 1},
        evaluation={"split": None},
    )
    summary = command("run", path, "--run-dir", tmp_path / "run", "--json").json()["summary"]
    assert summary["examples"] == 120
    assert summary["prequential_accuracy"] > 0.8
    shown = command("stream", "show", tmp_path / "log", "--json").json()
    assert (shown["total"], shown["schema"]["classes"]) == (120, ["tall", "broad"])


def test_a_log_is_built_once_and_read_by_runs(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config.yaml", stream={"limit": 64})
    built = command("stream", "build", path, tmp_path / "log", "--seed", 3, "--json").json()
    assert built == {"log": str(tmp_path / "log"), "examples": 64, "segments": 2}
    before = fingerprint(tmp_path / "log")
    again = command("stream", "build", path, tmp_path / "log", "--seed", 3)
    assert again.out == f"log of 64 examples: {tmp_path / 'log'}\n"
    assert "segment 2 of 2 (100%)" in again.err
    options = ("--seed", 3, "--set", f"log={tmp_path / 'log'}", "--json")
    summary = command("run", path, "--run-dir", tmp_path / "run", *options).json()["summary"]
    assert (summary["examples"], summary["seed"]) == (64, 3)
    assert not (tmp_path / "run" / "log").exists()
    after = fingerprint(tmp_path / "log")
    assert all(after[name] == before[name] for name in before if name != ".lock")
    shown = command("stream", "show", tmp_path / "log", "--json").json()
    assert (shown["seed"], shown["segments_present"], shown["total"]) == (3, 2, 64)
    assert "segments_present: 2" in command("stream", "show", tmp_path / "log").out
    refused(command("stream", "show", tmp_path), str(tmp_path), "header.json")
    refused(command("stream", "build", path, tmp_path / "log"), "another stream", "seed is 3, not 0")


def test_runner_options_reach_the_stream(config: Path) -> None:
    options = (
        "--runner",
        "FnApiRunner",
        "--runner-option=--direct_num_workers=2",
        "--runner-option=--no_save_main_session",
    )
    printed = command("run", config, *options, "--print-config", "--json").json()
    assert printed["stream"]["runner"] == "FnApiRunner"
    assert printed["stream"]["runner_options"] == ["--direct_num_workers=2", "--no_save_main_session"]


def test_selftest_checks_a_file_in_both_precisions(tmp_path: Path) -> None:
    file = min(shipped_files(), key=lambda path: path.stat().st_size)
    found = command("selftest", file, "--json").json()
    assert found["failed"] == 0
    assert [(row["precision"], row["passed"]) for row in found["results"]] == [
        ("float32", True),
        ("float64", True),
    ]
    assert all(0 <= row["largest_error"] <= 1e-4 for row in found["results"])
    assert "2 of 2 checks passed" in command("selftest", file).out
    refused(command("selftest", tmp_path / "none.npz"), "none.npz")


def test_a_prediction_is_traced_to_training_examples(finished: Path, tmp_path: Path) -> None:
    picture = tmp_path / "why.png"
    answer = command("explain", finished, "--index", 4, "--count", 3, "--picture", picture, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    source = open_source(StreamConfig(**STREAM).with_seed(0))
    assert len(found["contributions"]) == 3
    for each in found["contributions"]:
        if each["origin"] >= 0:
            row = source.read(each["origin"], each["origin"] + 1)
            assert each["label"] == source.schema.classes[int(row["y"][0])]
    with Image.open(picture) as drawn:
        assert drawn.width > 4 * 128
    refused(command("explain", finished, "--index", 10**6), "found 1000000")
    refused(command("explain", finished, "--layer", "block7"), "found 'block7'")
    refused(command("explain", finished, "--picture", tmp_path / "why.nothing"), "expected a name that ends")


def test_a_prediction_of_a_double_precision_run_is_traced(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "double"
    options = ("--set", "precision=float64", "--steps", 3, "--quiet")
    assert command("run", config, "--run-dir", run, *options).code == 0
    try:
        assert command("explain", run, "--json").json()["contributions"]
    finally:
        jax.config.update("jax_enable_x64", False)
