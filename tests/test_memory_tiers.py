"""Retrieval over a hot part and a cold part on disk equals retrieval over everything in memory."""

import gc
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lamina.errors import FormatError
from lamina.memory.append import Occupancy
from lamina.memory.coefficients import Clock, Clocks, CoefficientTable, block_coefficients, device_table
from lamina.memory.cold import COLUMNS, ColdPart, cold_layout
from lamina.memory.cold_stream import stream
from lamina.memory.database import EMPTY, Database, Rows, empty_database, grow, write
from lamina.memory.kernels import RBF, Kernel, Linear, WeightedSoftmax
from lamina.memory.neighbours import nearest
from lamina.memory.retrieval import retrieve
from lamina.memory.spill import SpillFolder, clear_spilled, spill
from lamina.memory.tiers import Tiers, retrieve_tiers

D, F, B, SLOTS, CHUNK = 5, 3, 4, 40, 6
KERNELS: list[Kernel] = [Linear(), RBF(0.8), WeightedSoftmax(0.6)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)


@pytest.fixture(autouse=True)
def _float64() -> object:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> SpillFolder:
    return SpillFolder(tmp_path / "spill")


def database(kernel: Kernel, seed: int = 0, entries: int = SLOTS) -> Database:
    """Entries of steps 1, 2, …, two a step, in slots drawn at random, in blocks of several sizes."""
    draw = np.random.default_rng(seed)
    made = empty_database(8, D, F, weighted=kernel.normalised, dtype=jnp.float64)
    while made.capacity < SLOTS:
        made = grow(made, SLOTS)
    slots = draw.permutation(SLOTS)[:entries]
    for step in range(1, 1 + -(-entries // 2)):
        chosen = slots[2 * step - 2 : 2 * step]
        rows = Rows(
            jnp.asarray(draw.normal(size=(len(chosen), D))),
            jnp.asarray(draw.normal(size=(len(chosen), F))),
            jnp.asarray(draw.uniform(size=len(chosen))) if kernel.normalised else None,
            jnp.asarray(chosen + 100, jnp.int32),
        )
        made = write(made, jnp.asarray(chosen, jnp.int32), rows, jnp.int32(step))
    return replace(made, entries=jnp.int32(entries))


def fading(steps: int = 20) -> CoefficientTable:
    clock = Clock.start()
    for _ in range(steps):
        clock = clock.advance(momentum=0.6, decay=0.1)
    return device_table(Clocks.both(clock), jnp.float64)


def tiered(kernel: Kernel, folder: SpillFolder, chunks: int, table: CoefficientTable | None = None) -> Tiers:
    """The same entries with the oldest `chunks`·CHUNK of them on disk."""
    hot = database(kernel)
    layout = cold_layout(CHUNK, D, F, weighted=kernel.normalised, dtype=np.float64)
    cold = ColdPart(layout, (), ())
    occupancy = Occupancy.of(hot, holes=False)
    for _ in range(chunks):
        hot, occupancy, cold = spill(
            hot, occupancy, cold, lambda layout, columns: folder.write("layer", layout, columns), 21
        )
    return Tiers(hot, cold, table)


def queries(count: int = B) -> jax.Array:
    return jnp.asarray(np.random.default_rng(7).normal(size=(count, D)))


def expected(kernel: Kernel, table: CoefficientTable | None, x: jax.Array) -> jax.Array:
    whole = database(kernel)
    coefficients = tuple(block_coefficients(block, table) for block in whole.blocks)
    return retrieve(kernel, whole.blocks, coefficients, x)


@every_kernel
@pytest.mark.parametrize("chunks", [0, 1, 4, 7])
@pytest.mark.parametrize("fades", [False, True])
def test_answers_and_gradients_are_those_of_one_tier(
    kernel: Kernel, chunks: int, fades: bool, folder: SpillFolder
) -> None:
    table = fading() if fades else None
    tiers = tiered(kernel, folder, chunks, table)
    assert int(tiers.database.entries) == SLOTS - min(chunks * CHUNK, SLOTS)
    assert tiers.cold.entries == min(chunks * CHUNK, SLOTS)
    direction = jnp.asarray(np.random.default_rng(8).normal(size=(B, F)))

    def ours(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        answers, distances, _ = retrieve_tiers(kernel, tiers, x, nearest=True)
        return jnp.sum(answers * direction), (answers, distances)

    def plain(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        answers = expected(kernel, table, x)
        return jnp.sum(answers * direction), answers

    slope, (answers, distances) = jax.grad(ours, has_aux=True)(queries())
    expected_slope, expected_answers = jax.grad(plain, has_aux=True)(queries())
    np.testing.assert_allclose(answers, expected_answers, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        distances, -nearest(database(kernel).blocks, queries()).scores[:, 0], rtol=1e-14
    )


@every_kernel
def test_the_budget_of_scores_changes_nothing_but_the_parts(kernel: Kernel, folder: SpillFolder) -> None:
    tiers, x = tiered(kernel, folder, 3), queries(37)  # 16 + 16 + 5

    def answer(x: jax.Array, budget: int) -> jax.Array:
        return retrieve_tiers(kernel, tiers, x, scores_budget_bytes=budget)[0]

    assert tiers.queries_at_once(1) == 16
    for budget in (1, 2**20):
        found, pull = jax.vjp(lambda x, budget=budget: answer(x, budget), x)
        whole, pull_whole = jax.vjp(lambda x: expected(kernel, None, x), x)
        np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-13)
        cotangent = jnp.ones_like(found)
        np.testing.assert_allclose(pull(cotangent)[0], pull_whole(cotangent)[0], rtol=1e-11, atol=1e-12)


@every_kernel
def test_rows_that_do_not_count_are_not_there(kernel: Kernel, folder: SpillFolder) -> None:
    """Without the first chunk and every second row of the next, as if they had never been."""
    tiers = tiered(kernel, folder, 3)
    even = np.arange(CHUNK) % 2 == 0
    cold = tiers.cold.with_live([np.zeros(CHUNK, bool), even, tiers.cold.live[2]])
    assert (len(cold.chunks), cold.entries) == (2, CHUNK // 2 + CHUNK)
    whole = database(kernel)
    created = whole.column("created")
    order = np.argsort(created, kind="stable")
    dead = [*order[:CHUNK], *order[CHUNK : 2 * CHUNK][~even]]
    blocks, begin = [], 0
    for block in whole.blocks:
        slots = np.arange(begin, begin + block.slots)
        blocks.append(replace(block, created=jnp.where(np.isin(slots, dead), EMPTY, block.created)))
        begin += block.slots
    coefficients = tuple(block_coefficients(block, None) for block in blocks)
    plain = retrieve(kernel, tuple(blocks), coefficients, queries())
    found, distances, _ = retrieve_tiers(kernel, replace(tiers, cold=cold), queries(), nearest=True)
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(distances, -nearest(tuple(blocks), queries()).scores[:, 0], rtol=1e-14)


@every_kernel
def test_nothing_at_all_answers_the_prior(kernel: Kernel, folder: SpillFolder) -> None:
    hot = empty_database(4, D, F, weighted=kernel.normalised, dtype=jnp.float64)
    layout = cold_layout(CHUNK, D, F, weighted=kernel.normalised, dtype=np.float64)
    tiers = Tiers(hot, ColdPart(layout, (), ()), None)
    found, distances, _ = retrieve_tiers(kernel, tiers, queries(), nearest=True)
    np.testing.assert_array_equal(found, np.zeros((B, F)))
    np.testing.assert_array_equal(distances, np.full(B, np.inf))


def test_the_oldest_are_spilled_bit_for_bit(folder: SpillFolder) -> None:
    kernel = WeightedSoftmax(1.0)
    whole = database(kernel)
    order = np.argsort(whole.column("created"), kind="stable")
    before = {name: whole.column(name)[order] for name in COLUMNS}
    tiers = tiered(kernel, folder, 3)
    read = [columns for _, columns in stream(tiers.cold, COLUMNS)]
    for name in COLUMNS:
        joined = np.concatenate([columns[name] for columns in read])
        np.testing.assert_array_equal(joined, before[name][: 3 * CHUNK])
        assert joined.dtype == before[name].dtype
    assert sorted(tiers.database.column("created")[tiers.database.column("created") > 0]) == sorted(
        before["created"][3 * CHUNK :]
    )
    backwards = [number for number, _ in stream(tiers.cold, COLUMNS, backwards=True)]
    assert backwards == [2, 1, 0]


def test_fewer_entries_than_a_chunk_leave_dead_rows(folder: SpillFolder) -> None:
    tiers = tiered(RBF(1.0), folder, 7)  # 7·6 > 40
    assert (tiers.cold.rows, tiers.cold.entries) == (42, 40)
    assert tiers.cold.live[-1].tolist() == [True] * 4 + [False] * 2


def test_files_go_with_the_last_that_refers_to_them(folder: SpillFolder, tmp_path: Path) -> None:
    tiers = tiered(RBF(1.0), folder, 2)
    assert len(files(tmp_path)) == 2 * 6
    chunk = tiers.cold.chunks[0]
    del tiers
    gc.collect()
    assert files(tmp_path) == sorted(chunk.files.values())
    del chunk
    gc.collect()
    assert files(tmp_path) == []


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_chunk_is_one_clear_line(damage: str, folder: SpillFolder) -> None:
    tiers = tiered(RBF(1.0), folder, 2)
    file = tiers.cold.chunks[1].files["values"]
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    else:
        content[11] ^= 4
        file.write_bytes(content if damage == "flip" else content[:-1])
    with pytest.raises(FormatError, match=r"values.*(restore)") as caught:
        retrieve_tiers(RBF(1.0), tiers, queries())
    assert "\n" not in str(caught.value)


def test_leftovers_of_a_killed_process_are_cleared(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    path.mkdir()
    (path / "layer.000000.keys").write_bytes(b"half")
    clear_spilled(path)
    tiers = tiered(RBF(1.0), SpillFolder(path), 1)
    assert files(tmp_path) == sorted(tiers.cold.chunks[0].files.values())
    found, _, _ = retrieve_tiers(RBF(1.0), tiers, queries())
    np.testing.assert_allclose(found, expected(RBF(1.0), None, queries()), rtol=1e-12)
