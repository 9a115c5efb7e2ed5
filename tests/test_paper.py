"""The paper's experiments: each runs, sweeps and cells resume, pages are those of the committed results."""

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamina.continual import Run
from lamina.errors import ConfigError
from lamina.stream import StreamConfig, open_source
from lamina.stream.augment import augment_images
from sklearn.neighbors import KNeighborsClassifier

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(autouse=True)
def _root_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks are no part of the package: they are run from the repository's root."""
    monkeypatch.syspath_prepend(ROOT)


def module(name: str) -> Any:
    return import_module(f"benchmarks.paper.{name}")


def paper(*words: object) -> None:
    assert module("__main__").main([str(word) for word in words]) == 0


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


# Results


@pytest.mark.timeout(900)
def test_the_cheapest_cell_of_each_experiment_is_what_it_was(tmp_path: Path) -> None:
    """As committed: the same settings and entries, and accuracies up to rounding on another machine."""
    paper("run", "all", "--smoke", "--cheapest", "--results", tmp_path / "data", "--work", tmp_path / "work")
    found = sorted(path.relative_to(tmp_path / "data") for path in tmp_path.glob("data/*/smoke*/*.json"))
    assert sorted({path.parts[0] for path in found}) == sorted(module("experiments").EXPERIMENTS)
    for path in found:
        ours, theirs = read(tmp_path / "data" / path), read(RESULTS / "data" / path)
        assert ours["settings"] == theirs["settings"]
        assert {"machine", "versions", "wall_seconds"} <= set(ours)
        figures, expected = ours["figures"], theirs["figures"]
        assert set(figures) == set(expected)
        assert figures["entries"] == expected["entries"]
        assert {"accuracy", "loss"} & set(figures)
        if "accuracy" in figures:  # some of these networks are too small to be steady: of 64 examples, five
            assert figures["accuracy"] == pytest.approx(expected["accuracy"], abs=8)
        if "loss" in figures:
            assert figures["loss"] == pytest.approx(expected["loss"], rel=0.1)
    assert not list((tmp_path / "work").glob("*/smoke*/*"))  # finished runs are cleared away


def test_pages_are_those_of_the_committed_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper("render", "--pages", tmp_path)
    written = capsys.readouterr().out.split()
    assert written
    for path in map(Path, written):
        committed = RESULTS / path.relative_to(tmp_path)
        assert path.read_text() == committed.read_text(), (
            f"{committed}: run python -m benchmarks.paper render"
        )
    pictures = {path.name for path in (RESULTS / "figures").glob("*")}
    assert pictures == {path.name for path in (tmp_path / "figures").glob("*")}


def test_every_file_of_results_is_of_a_declared_cell() -> None:
    experiments = module("experiments").EXPERIMENTS
    for path in (RESULTS / "data").rglob("*.json"):
        result = read(path)
        experiment = experiments[result["experiment"]]
        cells = {cell.name: cell for cell in experiment.cells(experiment.size(result["size"]))}
        task = module("results").Task(cells[result["cell"]], result["seed"], result["candidate"])
        assert path.stem == task.stem
        assert path.parts[-3] == result["experiment"]
        assert path.parts[-2].partition("-")[0] == result["size"]
        assert "/" not in json.dumps(result["settings"]), f"{path} names a path of a machine"


def test_commands_on_the_pages_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [*RESULTS.glob("*.md"), ROOT / "docs" / "benchmarks.md"]
    text = "\n".join(page.read_text() for page in pages)
    shown = {tuple(words.split()) for words in re.findall(r"python -m benchmarks.paper ([^`]+)`", text)}
    runs = [words for words in shown if words[0] == "run" and "EXPERIMENT" not in words]
    assert len(runs) >= 11
    for words in runs:
        paper(*words, "--smoke", "--dry-run")
    assert "one_pass/smoke-digits/rbf-t10.seed0" in capsys.readouterr().out


# The runner


@pytest.fixture
def place(tmp_path: Path) -> Any:
    """An experiment of two cells whose measurement is the number in their settings; None: it diverges."""
    kinds = module("experiment")

    def measure(job: Any) -> dict[str, Any]:
        (job.work / "trace").touch()
        value = job.settings["value"]
        if value is None:
            return {"failed": "not finite"}
        return {"accuracy": value + 10 * job.seed, "examples": job.size.train}

    def cells(size: Any) -> list[Any]:
        tried = {"low": {"value": 1.0}, "high": {"value": 3.0}, "worse": {"value": None}}
        chosen = kinds.Cell("chosen", "Chosen", {"value": 0.0}, tried, cost=2)
        return [chosen, kinds.Cell("plain", "Plain", {"value": 2.0}, paper=kinds.Paper(2.5, 0.5, "Fig. 0"))]

    experiment = kinds.Experiment(
        name="made_up",
        title="Made up",
        paper="Fig. 0",
        about="About.",
        differs="Nowhere.",
        sizes={"small": kinds.Size("small", 8, 1, 2, tried_on=4)},
        cells=cells,
        measure=measure,
        images=False,
    )
    return module("results").Place(experiment, "small", "", tmp_path / "data", tmp_path / "work")


def sweep(place: Any, **wanted: Any) -> int:
    return int(module("sweep").sweep(place, "", module("sweep").Wanted(**wanted)))


def test_validation_chooses_and_test_is_measured_seed_by_seed(place: Any) -> None:
    assert sweep(place) == 7
    assert sorted(path.stem for path in place.folder.glob("*")) == [
        *(f"chosen.seed{seed}" for seed in (0, 1)),
        *(f"chosen@{name}.seed0" for name in ("high", "low", "worse")),
        *(f"plain.seed{seed}" for seed in (0, 1)),
    ]
    chosen = read(place.folder / "chosen.seed1.json")
    assert chosen["settings"] == {"value": 3.0}
    assert chosen["figures"] == {"accuracy": 13.0, "examples": 8}
    assert chosen["held_out"] == "test"
    assert chosen["chosen"] == {"candidate": "high", "validation": {"low": 1.0, "high": 3.0, "worse": None}}
    tried = read(place.folder / "chosen@low.seed0.json")
    assert tried["held_out"] == "validation"
    assert tried["figures"]["examples"] == 4
    assert not list(place.scratch.glob("*"))


def test_a_sweep_does_what_is_left(place: Any) -> None:
    assert sweep(place, cells={"plain"}, seeds={1}) == 1
    assert sweep(place, cheapest=True) == 1
    assert sweep(place, minutes=-1) == 0
    assert sweep(place) == 5
    assert sweep(place) == 0
    (
        place.folder / "chosen@low.seed0.json"
    ).unlink()  # the choice is open again, and so is what follows from it
    assert sweep(place) == 1
    changed = read(place.folder / "plain.seed0.json")
    changed["settings"] = {"value": 7.0}  # of an earlier version of the cell
    (place.folder / "plain.seed0.json").write_text(json.dumps(changed))
    assert sweep(place) == 1
    assert read(place.folder / "plain.seed0.json")["figures"] == {"accuracy": 2.0, "examples": 8}


def test_a_page_says_what_is_there_and_what_is_not(place: Any, tmp_path: Path) -> None:
    sweep(place, cells={"plain"})
    written = module("render").render({"made_up": place.experiment}, tmp_path / "data", tmp_path)
    assert [path.name for path in written] == ["made_up.md", "README.md"]
    page, summary = (path.read_text() for path in written)
    assert "| `plain` | Plain | 7.0 ± 7.1 | 2.5 ± 0.5 (Fig. 0) | 2 |" in page
    assert "| `chosen` | Chosen | not run |" in page
    sweep(place)
    page = module("render").render({"made_up": place.experiment}, tmp_path / "data", tmp_path)[0].read_text()
    assert "one seed, after the first 4 training images; bold is in force):" in page
    assert "| [made_up](made_up.md) | Plain | small | 7.0 ± 7.1 (2 seeds) | 2.5 ± 0.5 (Fig. 0) |" in summary


def test_an_interrupted_cell_goes_on_from_its_last_commit(tmp_path: Path) -> None:
    experiment = module("experiments").EXPERIMENTS["one_pass"]
    size = experiment.size("smoke")
    (cell,) = (cell for cell in experiment.cells(size) if cell.name == "rbf-t10")
    job = module("experiment").Job(
        size, cell.settings, 0, "test", tmp_path / "whole", "digits", tmp_path / "shared"
    )
    whole = experiment.measure(job)
    stream = module("data").image_stream("digits", size, "test", job.shared)
    tasks = {"test": {**stream, "split": "test", "shuffle": False}}
    parts = replace(job, work=tmp_path / "parts")
    config = module("network").with_logs(
        module("network").run_config(parts, stream, tasks), job.shared / "logs"
    )
    parts.work.mkdir()
    with Run.create(config, parts.work / "run") as run:
        run.execute(steps=7, quiet=True)
    resumed = experiment.measure(parts)
    for clock in ("seconds", "step_milliseconds"):
        del whole[clock], resumed[clock]
    assert resumed == whole
    assert whole["accuracy"] > 80


def test_validation_is_a_part_of_the_training_data_that_is_then_not_trained_on(tmp_path: Path) -> None:
    data, kinds = module("data"), module("experiment")
    size = kinds.Size("full", 10_000, 10_000, 1)
    rows = {}
    for split in ("train", "test"):
        source = open_source(StreamConfig(source="digits", split=split, shuffle=False))
        rows[split] = source.read(0, source.length or 0)["x"]
    for held_out, train, test in (
        ("test", rows["train"], rows["test"]),
        ("validation", rows["train"][:-144], rows["train"][-144:]),
    ):
        stream = data.image_stream("digits", size, held_out, tmp_path)
        with np.load(stream["source"].removeprefix("npz:")) as arrays:
            np.testing.assert_array_equal(arrays["x_train"], train)
            np.testing.assert_array_equal(arrays["x_test"], test)


def test_a_projection_keeps_what_fits_its_width(tmp_path: Path) -> None:
    data, kinds = module("data"), module("experiment")
    size = kinds.Size("full", 300, 50, 1)
    plain = data.arrays_of(data.image_stream("digits", size, "test", tmp_path))
    whole = data.arrays_of(data.image_stream("digits", size, "test", tmp_path, project=64))
    narrow = data.arrays_of(data.image_stream("digits", size, "test", tmp_path, project=32))
    np.testing.assert_allclose(
        whole["x_train"] @ whole["x_test"].T, plain["x_train"] @ plain["x_test"].T, atol=2e-3
    )
    np.testing.assert_allclose(narrow["x_train"], whole["x_train"][:, :32], atol=1e-4)
    kept = np.sum(narrow["x_train"] ** 2) / np.sum(plain["x_train"] ** 2)
    assert 0.95 < kept < 1


def test_each_epoch_is_augmented_before_it_is_projected(tmp_path: Path) -> None:
    data, network, kinds = module("data"), module("network"), module("experiment")
    size = kinds.Size("full", 100, 50, 1)
    epochs = {"epochs": 2, "augment": True, "learner": module("experiments.learners").rbf(100)}
    job = kinds.Job(size, {**epochs, "project": 64}, 3, "test", tmp_path, "digits", tmp_path)
    stream = data.image_stream("digits", size, "test", tmp_path, project=64)
    phases = network.run_config(job, stream, {}).phases
    assert [phase.stream.seed for phase in phases.values()] == [300_001, 300_002]
    assert {phase.stream.augment for phase in phases.values()} == {"none"}  # that is done
    still, source = data.arrays_of(stream), open_source(StreamConfig(source="digits", shuffle=False))
    given = data.images_of("digits").standardise
    for phase in phases.values():
        moved = data.arrays_of({"source": phase.stream.source})
        images = augment_images(source.read(0, 100)["x"], phase.stream.seed, 0)
        rows = (images.reshape(100, 64).astype(np.float32) - given["mean"]) / given["std"]
        # All 64 directions: inner products with what is not augmented show both that and the projection.
        pixels = (source.read(0, 100)["x"].reshape(100, 64).astype(np.float32) - given["mean"]) / given["std"]
        np.testing.assert_allclose(moved["x_train"] @ still["x_train"].T, rows @ pixels.T, atol=2e-3)
        np.testing.assert_array_equal(moved["x_test"], still["x_test"])
    wide = network.run_config(
        replace(job, settings=epochs), data.image_stream("digits", size, "test", tmp_path), {}
    )
    assert {phase.stream.augment for phase in wide.phases.values()} == {"cifar"}


def test_images_are_known_by_their_shape_and_classes(tmp_path: Path) -> None:
    data, kinds, results = module("data"), module("experiment"), module("results")
    images, labels = np.zeros((100, 32, 32, 3), np.uint8), np.arange(100)
    for name, x, y in (
        ("cifar100", images, labels),
        ("cifar10", images, labels % 10),
        ("other", images[:, :9], labels),
    ):
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    many = f"npz:{tmp_path / 'cifar100.npz'}"
    assert data.images_of(many).slug == "cifar100"
    assert data.images_of(f"npz:{tmp_path / 'cifar10.npz'}").slug == "cifar10"
    size = kinds.Size("full", 100, 100, 1)
    assert data.image_stream(many, size, "test", tmp_path)["classes"] == 100
    with pytest.raises(
        ConfigError, match=r"CIFAR-100 \[32, 32, 3\] of 100.*found \[9, 32, 3\] of 100.*--data"
    ):
        data.images_of(f"npz:{tmp_path / 'other.npz'}")
    experiment = module("experiments").EXPERIMENTS["one_pass"]
    published = {
        slug: [cell.paper for cell in results.Place(experiment, "full", slug).cells]
        for slug in ("cifar10", "cifar100", "fashion")
    }
    assert any(published["cifar10"])
    assert not any(published["cifar100"] + published["fashion"])  # the paper's are of CIFAR-10


def test_neighbours_are_scikit_learns(tmp_path: Path) -> None:
    data, kinds = module("data"), module("experiment")
    size = kinds.Size("full", 500, 200, 1)
    job = kinds.Job(
        size, {"reference": {"kind": "knn", "neighbours": 5}}, 0, "test", tmp_path, "digits", tmp_path
    )
    arrays = data.arrays_of(data.image_stream("digits", size, "test", tmp_path))
    peer = KNeighborsClassifier(5).fit(arrays["x_train"], arrays["y_train"])
    expected = 100 * peer.score(arrays["x_test"], arrays["y_test"])
    found = module("reference").measure(job)
    assert found["accuracy"] == pytest.approx(expected, abs=0.6)  # a tie or two is broken otherwise
    assert found["entries"] == 500


def test_helpers_say_what_they_do() -> None:
    import doctest

    for name in ("experiment", "remarks", "experiments.capacity", "experiments.verdicts"):
        result = doctest.testmod(module(name))
        assert result.attempted > 0
        assert result.failed == 0
