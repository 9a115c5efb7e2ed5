"""Forgetting chosen training examples of a run."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from lamina.continual.config import RunConfig, parse_config
from lamina.continual.forgetting import forget_examples
from lamina.continual.run import Run
from lamina.errors import MissingDataError
from tiny_runs import TINY, changed, command, refused

GROWING: dict[str, dict[str, Any]] = {
    "in memory": {},
    "partly on disk": {"memory": {"budget_bytes": 40_000}},
}


def tiny(**learner: Any) -> RunConfig:
    return parse_config(changed(TINY, {"learner": {"blocks": 1, **learner}}))


@pytest.fixture(params=GROWING)
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of 96 digits."""
    with Run.create(tiny(**GROWING[request.param]), tmp_path / "run") as run:
        run.execute(quiet=True)
    return tmp_path / "run"


def origins(directory: Path) -> list[int]:
    with Run.resume(directory) as run:
        return sorted(
            origin
            for memory in run.state.memories.values()
            for origin in memory.database.column("origin")[memory.database.column("created") > 0].tolist()
        )


def answers(directory: Path) -> np.ndarray:
    with Run.resume(directory) as run:
        (task,) = run.tasks.values()
        return np.concatenate(
            [out for out, *_ in task.answers(run.learner, run.state, run.reader.prepare, examples=50)]
        )


def test_the_entries_of_the_examples_go_and_the_change_is_reported(finished: Path) -> None:
    before = answers(finished)
    found = forget_examples(finished, [3, 40, 41], examples=50)
    assert set(found.entries.values()) == {3}
    change = np.linalg.norm(answers(finished) - before, axis=1)
    assert found.examples == 50
    assert found.largest_change == pytest.approx(change.max(), rel=1e-5)
    assert found.mean_change == pytest.approx(change.mean(), rel=1e-5)
    assert change.max() > 0
    assert not {3, 40, 41} & set(origins(finished))


def test_an_example_without_entries_is_refused_and_nothing_changes(finished: Path) -> None:
    before = answers(finished)
    with pytest.raises(MissingDataError, match="found 1000, from which there is none"):
        forget_examples(finished, [3, 1000])
    np.testing.assert_array_equal(answers(finished), before)


def test_what_is_left_answers_as_if_the_entries_had_never_been(tmp_path: Path) -> None:
    """Of a single layer, whose answer is a sum: without an entry it is the sum of the others."""
    with Run.create(tiny(blocks=0), tmp_path / "run") as run:
        run.execute(quiet=True)
    with Run.resume(tmp_path / "run") as run:
        queries = np.asarray(jax.random.normal(jax.random.key(0), (5, 64)))
        memory = run.state.memories["readout"]
        whole = run.learner.query(run.state, "readout", queries)
        keys, values = (memory.database.column(c) for c in ("keys", "values"))
        chosen = np.isin(memory.database.column("origin"), [7, 8])
        temperature = run.config.learner.temperature
    square = np.sum((keys[chosen][:, None] - queries[None]) ** 2, axis=2)
    parts = np.exp(-square / (2 * temperature * 8)).T @ values[chosen]
    forget_examples(tmp_path / "run", [7, 8])
    with Run.resume(tmp_path / "run") as run:
        left = run.learner.query(run.state, "readout", queries)
    np.testing.assert_allclose(left, whole - parts, rtol=1e-4, atol=1e-5)


def test_from_the_command_line(tmp_path: Path) -> None:
    with Run.create(tiny(), tmp_path / "run") as run:
        run.execute(quiet=True)
    found = command("forget", tmp_path / "run", 5, "--examples", 30, "--json").json()
    assert (set(found["entries"].values()), found["examples"]) == ({1}, 30)
    refused(command("forget", tmp_path / "run", 5), "from which there is none")
    told = command("forget", tmp_path / "run", 6, 7)
    first, second, _ = told.out.splitlines()
    assert first == "4 entries are gone: 2 of block0, 2 of readout"
    assert second.startswith("on 359 held-out examples outputs changed by ")
