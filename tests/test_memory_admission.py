"""Admission by hand: polarity and effect of every threshold, and both scopes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.memory.admission import Decision, decide
from lamina.memory.append import Occupancy, append
from lamina.memory.coefficients import Clock, Clocks, CoefficientTable, block_coefficients, device_table
from lamina.memory.database import Database, Rows, empty_database, write
from lamina.memory.kernels import RBF, Kernel, Linear, WeightedSoftmax
from lamina.memory.policy import MemoryConfig
from lamina.memory.retrieval import retrieve
from lamina.memory.sharding import ONE_DEVICE, Shards
from pydantic import ValidationError

judge = jax.jit(decide, static_argnums=(0, 1))
answers = jax.jit(retrieve, static_argnums=0)
KERNEL = RBF(1.0)


def database_of(keys: Any, *, shards: Shards = ONE_DEVICE, features: int = 2) -> Database:
    """Entries of step 1 with values 1."""
    keys = jnp.asarray(keys, jnp.float32).reshape(-1, features)
    count = len(keys)
    database = empty_database(count + 3, features, 1, weighted=False, shards=shards)
    rows = Rows(keys, jnp.ones((count, 1)), None, jnp.arange(count, dtype=jnp.int32))
    database = write(database, jnp.arange(count, dtype=jnp.int32), rows, jnp.int32(1))
    return database.__class__(database.blocks, jnp.int32(count), database.counters, shards)


def admitted(
    keys: Any, queries: Any, errors: Any = None, *, kernel: Kernel = KERNEL, **policy: Any
) -> list[bool]:
    queries = jnp.asarray(queries, jnp.float32)
    errors = jnp.ones(len(queries)) if errors is None else jnp.asarray(errors, jnp.float32)
    config = MemoryConfig(initial_capacity=4, **policy)
    found: list[bool] = judge(config, kernel, database_of(keys), None, queries, errors).admitted.tolist()
    return found


def novelty(threshold: float, **options: Any) -> dict[str, Any]:
    return {"admission": "novelty", "novelty_threshold": threshold, **options}


def test_novel_is_what_is_farther_than_the_threshold_strictly() -> None:
    keys, queries = [[0, 0], [10, 0]], [[5, 0], [3, 4], [5.01, 0], [4, 4], [0, 0], [-6, 0]]
    # Distances to the nearest key: 5, 5, 4.99, √32, 0, 6.
    assert admitted(keys, queries, **novelty(5)) == [False, False, False, True, False, True]


def test_threshold_zero_rejects_only_exact_duplicates() -> None:
    queries = [[1, 2], [1, 2.0001], [3, 4]]
    assert admitted([[1, 2], [3, 4]], queries, **novelty(0)) == [False, True, False]


def test_an_infinite_threshold_admits_nothing() -> None:
    assert admitted([], [[0, 0], [1, 1]], **novelty(np.inf)) == [False, False]
    assert admitted([[0, 0]], [[1e6, 0]], **novelty(np.inf)) == [False]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1e30])
def test_everything_is_novel_to_an_empty_database(threshold: float) -> None:
    twins = [[0, 0], [0, 0]]
    assert admitted([], twins, **novelty(threshold)) == [True, True]  # both: the batch is not looked at
    assert admitted([], twins, **novelty(threshold, admission_scope="batch")) == [True, False]


def test_an_error_threshold_needs_both() -> None:
    rules = novelty(1, error_threshold=0.5)
    assert admitted([[0, 0]], [[2, 0], [2, 0], [0.5, 0]], [0.6, 0.5, 9], **rules) == [True, False, False]


@pytest.mark.parametrize("scope", ["before", "batch"])
def test_rows_that_are_not_offered_are_passed_over(scope: str) -> None:
    """They become no entries, take nobody's place within the batch, and merge into nothing."""
    queries = jnp.array([[4.0, 0], [4.1, 0], [0.1, 0], [9, 0]])
    offered = jnp.array([False, True, False, True])
    for rules in (novelty(1), {"admission": "quantize", "quantize_radius": 1}):
        config = MemoryConfig(initial_capacity=4, admission_scope=scope, **rules)
        found = decide(config, KERNEL, database_of([[0, 0]]), None, queries, jnp.ones(4), offered=offered)
        assert found.admitted.tolist() == [False, True, False, True]
        assert found.target is None or found.target.tolist() == [-1] * 4
        rows = Rows(queries, jnp.ones((4, 1)), None, jnp.arange(4, dtype=jnp.int32))
        database = database_of([[0, 0]])
        database, occupancy, change = append(
            config, KERNEL, database, Occupancy.of(database, holes=False), None, rows, found, 2
        )
        assert change.tolist() == [2, 0, 0, 0, 0]
        assert occupancy.least <= int(database.entries) == 3 <= occupancy.most
    everything = decide(
        MemoryConfig(initial_capacity=4), KERNEL, database_of([]), None, queries, jnp.ones(4), offered=offered
    )
    assert everything.admitted.tolist() == offered.tolist()


def test_a_distance_may_be_weighted_by_the_error() -> None:
    rules = novelty(1, error_weighted=True)
    assert admitted([[0, 0]], [[2, 0], [2, 0], [0.5, 0]], [0.6, 0.4, 3], **rules) == [True, False, True]
    assert admitted([], [[2, 0]], [0.0], **rules) == [True]  # nothing to be near to


def test_a_threshold_may_rise_with_fullness() -> None:
    keys = [[0, 0], [100, 0]]  # a half-full memory: the threshold is 1·(1 + 4·2/4) = 3
    rules = novelty(1, threshold_rise=4, capacity=4)
    assert admitted(keys, [[2.9, 0], [3.1, 0]], **rules) == [False, True]


def test_incoherent_is_what_no_entry_resembles_more_than_the_threshold() -> None:
    # ρ of RBF at distance r is exp(−r²/(2√2)).
    at = np.sqrt(-2 * np.sqrt(2) * np.log(0.5))
    rules = {"admission": "coherence", "coherence_threshold": 0.5}
    assert admitted([[0, 0]], [[at * 1.001, 0], [at * 0.999, 0]], **rules) == [True, False]
    assert admitted([], [[0, 0], [0, 0]], **rules) == [True, True]
    assert admitted([], [[0, 0], [0.1, 0], [5, 0]], **rules, admission_scope="batch") == [True, False, True]


def test_coherence_is_of_normalised_features() -> None:
    """Of a linear kernel the cosine, whatever the lengths and the sign; of a softmax that of exponentials."""
    rules = {"admission": "coherence", "coherence_threshold": 0.8}
    queries = [[50, 0], [-50, 0], [0, 0.01], [1, 1]]
    assert admitted([[1e-3, 0]], queries, kernel=Linear(), **rules) == [False, False, True, True]
    near, far = np.sqrt(-2 * np.sqrt(2) * np.log([0.81, 0.79]))
    found = admitted([[7, 0]], [[7, near], [7, far]], kernel=WeightedSoftmax(1.0), **rules)
    assert found == [False, True]


def test_what_neighbours_span_is_linearly_dependent() -> None:
    """A linear kernel's features are the vectors: the residual is sin² of the angle to their span."""
    keys = [[1, 0, 0], [1, 1, 0]]
    queries = [[3, -2, 0], [1, 0, 1], [0, 0, 2], [1, 1, 0.01]]  # sin²: 0, ½, 1, 5e-5
    for threshold, expected in [(0.01, [0, 1, 1, 0]), (0.6, [0, 0, 1, 0]), (1.0, [0, 0, 0, 0])]:
        config = MemoryConfig(admission="ald", ald_threshold=threshold)
        found = judge(
            config, Linear(), database_of(keys, features=3), None, jnp.asarray(queries), jnp.ones(4)
        )
        assert found.admitted.tolist() == [bool(e) for e in expected]


def test_dependence_on_the_batch_counts_where_asked() -> None:
    rules = {"admission": "ald", "ald_threshold": 0.5}
    queries = [[1, 0], [0, 1], [1, 1]]
    assert admitted([], queries, kernel=Linear(), **rules) == [True, True, True]
    assert admitted([], queries, kernel=Linear(), **rules, admission_scope="batch") == [True, True, False]


def test_fewer_neighbours_admit_no_fewer() -> None:
    draw = np.random.default_rng(1)
    keys, queries = draw.normal(size=(20, 2)), draw.normal(size=(30, 2))
    rules = {"admission": "ald", "ald_threshold": 0.02}
    counts = [sum(admitted(keys, queries, **rules, neighbours=m)) for m in (1, 2, 5, 20)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_surprise_is_bounded_on_both_sides() -> None:
    """½·ln σ² + e²/(2σ²) with σ² = 0.5 + 1 for a query that nothing resembles."""
    surprises = np.log(1.5) / 2 + np.array([0.5, 2.0, 4.0]) ** 2 / 3
    assert surprises[0] < 0.5 < surprises[1] < 3 < surprises[2]
    rules = {"admission": "surprise", "surprise_least": 0.5, "surprise_most": 3.0, "surprise_noise": 0.5}
    assert admitted([[0, 0]], [[99, 0]] * 3, [0.5, 2, 4], **rules) == [False, True, False]
    # What the memory knows has little variance left: the same error surprises more, no error less.
    assert admitted([[0, 0]], [[0, 0]] * 2, [1.3, 0.0], **rules) == [True, False]


QUANTIZE = {"admission": "quantize", "quantize_radius": 1.0}


def offered(keys: Any, values: Any) -> Rows:
    keys = jnp.asarray(keys, jnp.float32)
    return Rows(
        keys, jnp.asarray(values, jnp.float32)[:, None], None, jnp.arange(len(keys), dtype=jnp.int32) + 50
    )


def quantized(
    rows: Rows, table: CoefficientTable | None = None, **options: Any
) -> tuple[Database, list[int]]:
    policy = MemoryConfig(initial_capacity=4, **QUANTIZE, **options)
    database = database_of([[0, 0], [5, 0]])
    decision = judge(policy, RBF(1.0), database, table, rows.keys, jnp.ones(len(rows.keys)))
    occupancy = Occupancy.of(database, holes=False)
    database, _, change = append(policy, RBF(1.0), database, occupancy, table, rows, decision, 2)
    return database, change.tolist()


def test_a_query_within_the_radius_adds_its_value_to_the_entry_there() -> None:
    database, change = quantized(offered([[1, 0], [0, -0.5], [3, 0], [5, 1.01]], [10, 100, 1000, 10000]))
    assert change == [2, 2, 0, 0, 0]
    assert database.column("values")[:4, 0].tolist() == [111, 1, 1000, 10000]
    assert database.column("changed")[:4].tolist() == [2, 1, 2, 2]
    assert database.column("value_norms")[0] == 111
    assert database.column("keys")[:2].tolist() == [[0, 0], [5, 0]]  # keys stay


def test_near_duplicates_that_arrive_together_merge_where_asked() -> None:
    rows = offered([[9, 0], [9.5, 0], [8.9, 0], [9, 0]], [1, 2, 4, 8])
    assert quantized(rows)[1] == [4, 0, 0, 0, 0]
    database, change = quantized(rows, admission_scope="batch")
    assert change == [1, 3, 0, 0, 0]
    assert database.column("values")[2, 0] == 15


def test_what_merged_into_a_row_without_room_is_rejected_with_it() -> None:
    rows = offered([[9, 0], [9.5, 0], [0, 0]], [1, 2, 4])
    database, change = quantized(rows, admission_scope="batch", capacity=2)
    assert change == [0, 1, 2, 0, 0]
    assert database.column("values")[:2, 0].tolist() == [5, 1]


def test_merging_is_exact_for_equal_keys_under_decay() -> None:
    """The entry's coefficient has faded, so what it takes up is stored larger."""
    clock = Clock.start()
    for _ in range(3):
        clock = clock.advance(momentum=0.0, decay=0.3)
    table = device_table(Clocks.both(clock), jnp.float32)
    rows = offered([[0, 0]], [2.0])
    database, _ = quantized(rows, table)
    for _ in range(2):
        clock = clock.advance(momentum=0.0, decay=0.3)
        table = device_table(Clocks.both(clock), jnp.float32)
        coefficients = tuple(block_coefficients(block, table) for block in database.blocks)
        query = jnp.zeros((1, 2))
        found = float(answers(RBF(1.0), database.blocks, coefficients, query)[0, 0])
        far = np.exp(-25 / (2 * np.sqrt(2)))
        apart = clock.coefficients[0] * (1 + far) + 2.0 * 0.7 ** (clock.step - 3)
        assert found == pytest.approx(apart, rel=1e-5)


def test_an_entry_that_has_faded_away_takes_up_nothing() -> None:
    clock = Clock.start().advance(momentum=0, decay=0).advance(momentum=0, decay=0.9999)
    table = device_table(Clocks.both(clock), jnp.float32)
    _, change = quantized(offered([[0, 0]], [1.0]), table)
    assert change == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["novelty", "coherence", "quantize", "ald", "surprise"])
@pytest.mark.parametrize("scope", ["before", "batch"])
def test_four_devices_decide_as_one(name: str, scope: Any) -> None:
    options: dict[str, dict[str, Any]] = {
        "novelty": {"novelty_threshold": 0.6},
        "coherence": {"coherence_threshold": 0.97},
        "quantize": {"quantize_radius": 0.6},
        "ald": {"ald_threshold": 0.05, "neighbours": 6},
        "surprise": {"surprise_least": -0.5, "surprise_most": 3.0, "neighbours": 6},
    }
    policy = MemoryConfig(admission=name, admission_scope=scope, **options[name])
    draw = np.random.default_rng(2)
    keys, queries = draw.normal(size=(37, 2)), jnp.asarray(draw.normal(size=(12, 2)), jnp.float32)
    errors = jnp.asarray(draw.uniform(size=12), jnp.float32)
    one, four = (
        judge(policy, RBF(1.0), database_of(keys, shards=shards), None, queries, errors)
        for shards in (ONE_DEVICE, Shards.over(4))
    )
    assert 0 < sum(one.admitted.tolist()) < 12
    assert one.admitted.tolist() == four.admitted.tolist()
    if name == "quantize":
        assert one.target.tolist() == four.target.tolist()


def test_all_admits_all() -> None:
    decision = judge(MemoryConfig(), RBF(1.0), database_of([[0, 0]]), None, jnp.zeros((3, 2)), jnp.zeros(3))
    assert decision.admitted.tolist() == [True] * 3
    assert Decision.everything(3).admitted.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"admission": "novelty"}, "belong together"),
        ({"novelty_threshold": 1.0}, "belong together"),
        ({"error_threshold": 1.0}, "leave error_threshold out, or set admission"),
        ({"admission": "coherence", "coherence_threshold": 1.1}, "less than or equal to 1"),
        ({"admission": "coherence", "coherence_threshold": 0.5, "error_weighted": True}, "belong together"),
        ({"admission": "quantize", "quantize_radius": -1.0}, "greater than or equal to 0"),
        ({"admission": "surprise", "surprise_least": 1.0}, "belong together"),
        ({"admission": "surprise", "surprise_least": 2.0, "surprise_most": 1.0}, "must lie below"),
        ({"admission_scope": "batch"}, "admission 'all' does not"),
        ({"neighbours": 5}, "are looked at by admission 'ald'"),
        ({**novelty(1.0), "threshold_rise": 1.0}, "set capacity too"),
        ({"eviction": "oldest"}, "set capacity too"),
        ({"merge_candidates": 5}, "leave merge_candidates out, or set eviction"),
        (novelty(-1.0), "greater than or equal to 0"),
        (novelty(float("nan")), "greater than or equal to 0"),
        ({"capacity": 0}, "greater than 0"),
        ({"eviction": "fifo", "capacity": 4}, "'none', 'oldest', 'smallest'"),
        ({"prune_epsilon": -0.1}, "greater than or equal to 0"),
        ({"prune_every": 0}, "greater than 0"),
        ({"fold_every": 0}, "greater than 0"),
        ({"capcity": 4}, "capcity"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        MemoryConfig(**options)
