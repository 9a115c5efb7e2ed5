"""What thresholds would cost: against pruning itself, and against a loop over all pairs of keys."""

from pathlib import Path

import numpy as np
import pytest
from lamina.continual import Run, parse_config, read_config
from lamina.continual.what_if import what_if
from lamina.errors import LaminaError
from lamina.memory.store import Store
from lamina.monitoring import inspect_run
from tiny_runs import STREAM, changed, write_config, write_log


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("config")
    log = write_log(folder / "log", STREAM)
    return read_config(write_config(folder / "config.yaml", log=str(log)))


def run_to(config: dict, folder: Path, learner: dict, steps: int = 9) -> Run:
    run = Run.create(parse_config(changed(config, {"learner": learner})), folder)
    run.execute(steps, quiet=True)
    return run


@pytest.mark.parametrize("learner", [{}, {"momentum": 0.5, "decay": 0.05}])
def test_epsilon_costs_what_pruning_removes(config: dict, tmp_path: Path, learner: dict) -> None:
    with run_to(config, tmp_path / "run", learner) as run:
        layer = what_if(tmp_path / "run")["layers"]["readout"]
        curve, memory = layer["epsilon"], run.state.memories["readout"]
        assert layer["bounded"]
        assert layer["entries"] == int(memory.database.entries) == 72
        place = len(curve["thresholds"]) // 2
        epsilon = np.nextafter(np.float32(curve["thresholds"][place]), np.float32(np.inf))
        keeper = run.learner.keepers["readout"]
        _, done = keeper.prune(memory, float(epsilon), run.state.step)
    assert done.removed == curve["counts"][place]
    assert done.bound == pytest.approx(curve["bounds"][place], rel=1e-5)
    assert curve["counts"][0] == curve["bounds"][0] == 0
    assert curve["counts"][-1] == layer["entries"]
    assert curve["thresholds"] == sorted(curve["thresholds"])


def test_tau_costs_what_has_an_earlier_key_that_near(config: dict, tmp_path: Path) -> None:
    run_to(config, tmp_path / "run", {}).close()
    curve = what_if(tmp_path / "run")["layers"]["readout"]["tau"]
    with Store.open(tmp_path / "run" / "memory") as store, store.generation() as generation:
        table = generation.tables["readout"]
        keys, created = table.read("keys").astype(np.float64), table.read("created")
    nearest = []
    for key, step in zip(keys, created, strict=True):
        distances = [np.linalg.norm(key - other) for other in keys[created < step]]
        nearest += [min(distances)] if distances else []
    nearest.sort()
    assert curve["counts"][-1] == len(nearest) == 64  # the first batch has no earlier keys
    for threshold, count in zip(curve["thresholds"], curve["counts"], strict=True):
        assert np.searchsorted(nearest, threshold + 1e-9) == count


def test_a_sample_stands_for_all(config: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to(config, tmp_path / "run", {}).close()
    whole = what_if(tmp_path / "run")["layers"]["readout"]["tau"]
    monkeypatch.setattr("lamina.continual.what_if._MOST_SAMPLED", 36)
    monkeypatch.setattr("lamina.continual.what_if._CHUNK_ROWS", 10)
    part = what_if(tmp_path / "run")["layers"]["readout"]["tau"]
    assert part["sampled"] <= 36
    assert set(np.round(part["thresholds"], 9)) <= set(np.round(whole["thresholds"], 9))
    assert part["counts"][-1] == pytest.approx(whole["counts"][-1], rel=0.1)


def test_weighted_entries_have_no_bound_but_a_share(config: dict, tmp_path: Path) -> None:
    run_to(config, tmp_path / "run", {"kind": "softmax", "weight_rate": 0.1}).close()
    layer = what_if(tmp_path / "run")["layers"]["readout"]
    assert not layer["bounded"]
    assert layer["entries"] == 72  # the initial entries are never dropped, and not among them
    assert layer["epsilon"]["bounds"][-1] == pytest.approx(1.0)


def test_a_memory_in_two_tiers_is_one(config: dict, tmp_path: Path) -> None:
    run_to(config, tmp_path / "whole", {}).close()
    run_to(config, tmp_path / "tiers", {"memory": {"initial_capacity": 16, "budget_bytes": 20_000}}).close()
    whole, tiers = (what_if(tmp_path / name)["layers"] for name in ("whole", "tiers"))
    assert list(tiers) == ["readout"]
    assert inspect_run(tmp_path / "tiers")["layers"]["readout"]["cold_entries"] > 0
    assert tiers["readout"]["entries"] == whole["readout"]["entries"]
    for kind in ("epsilon", "tau"):
        assert tiers["readout"][kind]["counts"] == whole["readout"][kind]["counts"]
        np.testing.assert_allclose(
            tiers["readout"][kind]["thresholds"], whole["readout"][kind]["thresholds"], rtol=1e-4
        )


def test_before_the_first_entry_there_is_nothing_to_tell(config: dict, tmp_path: Path) -> None:
    run_to(config, tmp_path / "run", {}, steps=1).close()
    with Run.create(parse_config(config), tmp_path / "new"):
        layer = what_if(tmp_path / "new")["layers"]["readout"]
        assert (layer["entries"], layer["epsilon"], layer["tau"]) == (0, None, None)
    assert what_if(tmp_path / "run")["layers"]["readout"]["tau"] is None  # one step: no earlier key
    with pytest.raises(LaminaError):
        what_if(tmp_path / "nowhere")
