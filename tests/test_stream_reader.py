"""The reader against a slow model, restored at every position, and its refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamina.durable import FolderLock
from lamina.errors import ConfigError, DataError, FormatError, MissingDataError
from lamina.stream import GivenStatistics, StreamConfig, StreamReader, open_source
from lamina.stream.log import create_log


def make_log(path, config):
    source = open_source(config)
    log = create_log(path, config, source)
    for segment in range(log.segments):
        log.write_segment(segment, source.read(*log.span(segment)))
    return log


def make_npz_log(path, x, y, segment_length, **options):
    path.mkdir(parents=True, exist_ok=True)
    np.savez(path / "data.npz", x_train=x, y_train=y)
    spec = f"npz:{path / 'data.npz'}"
    config = StreamConfig(source=spec, shuffle=False, segment_length=segment_length, **options)
    return make_log(path / "log", config)


@pytest.fixture(scope="module")
def digits_log(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "log"
    make_log(path, StreamConfig(source="digits", seed=1, limit=130, segment_length=17))
    return path


@settings(max_examples=60, deadline=None)
@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=40),
    segment_length=st.integers(1, 12),
    batch_size=st.integers(1, 15),
    data=st.data(),
)
def test_skipping_agrees_with_a_model(tmp_path_factory, bad, segment_length, batch_size, data):
    n = len(bad)
    if all(bad) or batch_size > n:
        return
    x = np.arange(2.0 * n).reshape(n, 2)
    x[np.array(bad), 1] = np.nan
    log = make_npz_log(tmp_path_factory.mktemp("model"), x, np.arange(n) % 3, segment_length)
    start = data.draw(st.integers(0, n))
    reader = StreamReader(log.path, batch_size, start, on_bad_input="skip")
    reader.delivered = 1  # as after a restore: nothing left is no fault then
    rows = [row for row in range(start, n) if not bad[row]]
    expected = [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
    position = start
    for batch, origins in zip(reader, expected, strict=True):
        assert batch.origins.tolist() == origins
        assert batch.x.tolist() == x[origins].tolist()
        assert batch.y.tolist() == [row % 3 for row in origins]
        full = len(origins) == batch_size
        assert batch.offset == (origins[-1] + 1 if full else n)
        assert batch.skipped == sum(bad[position : batch.offset])
        position = batch.offset
    assert reader.offset == n
    assert reader.skipped == sum(bad[start:])


@pytest.mark.parametrize("batch_size", [1, 7, 17, 40, 130])
def test_batches_cross_segments_and_the_last_is_partial(digits_log, batch_size):
    expected = open_source(StreamConfig(source="digits", seed=1)).read(0, 130)
    batches = list(StreamReader(digits_log, batch_size))
    assert [len(batch.x) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert len(batches) == -(-130 // batch_size)
    np.testing.assert_array_equal(np.concatenate([batch.x for batch in batches]), expected["x"], strict=True)
    np.testing.assert_array_equal(np.concatenate([batch.y for batch in batches]), expected["y"], strict=True)
    assert np.concatenate([batch.origins for batch in batches]).tolist() == list(range(130))
    assert batches[-1].offset == 130


def test_restoring_at_every_position_gives_the_same_batches(digits_log):
    def reader():
        return StreamReader(digits_log, 8, standardise="running", flatten=True)

    def bits(batch):
        return batch.x.tobytes(), batch.y.tobytes(), batch.origins.tobytes(), batch.offset

    whole = reader()
    states, batches = [json.dumps(whole.state())], []
    for batch in whole:
        batches.append(bits(batch))
        states.append(json.dumps(whole.state()))
    assert len(batches) == 17
    for position, state in enumerate(states):
        again = reader()
        if position % 2:
            next(again)  # restoring also works on a reader that has moved
        again.restore(json.loads(state))
        assert [bits(batch) for batch in again] == batches[position:]
        assert json.dumps(again.state()) == states[-1]


def test_prepared_forms(digits_log):
    plain = next(StreamReader(digits_log, 8))
    assert plain.x.shape == (8, 8, 8, 1)
    assert plain.x.dtype == np.uint8
    statistics = GivenStatistics(mean=0.3, std=0.4, scale=16.0)
    reader = StreamReader(digits_log, 8, standardise=statistics, flatten=True)
    prepared = next(reader)
    assert prepared.x.dtype == np.float32
    expected = (plain.x.reshape(8, 64) / 16 - 0.3) / 0.4
    np.testing.assert_allclose(prepared.x, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(reader.prepare(plain.x), prepared.x)


def test_evaluating_does_not_change_running_statistics(digits_log):
    reader = StreamReader(digits_log, 8, standardise="running")
    next(reader)
    before = json.dumps(reader.state())
    reader.prepare(np.full((5, 8, 8, 1), 200, np.uint8))
    assert json.dumps(reader.state()) == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [("nan", "example 13 .*NaN"), ("label", "example 13 .*outside the declared classes 0 to")],
)
def test_failing_names_the_example_and_delivers_what_came_before(tmp_path, spoil, words):
    x, y = np.ones((20, 2)), np.arange(20) % 3
    if spoil == "nan":
        x[13, 0] = np.nan
    else:
        y[13] = 3
    log = make_npz_log(tmp_path, x, y, 6, classes=3)
    reader = StreamReader(log.path, 5)
    assert [next(reader).offset, next(reader).offset] == [5, 10]
    state = reader.state()
    for _ in range(2):
        with pytest.raises(DataError, match=words):
            next(reader)
    assert reader.state() == state


def test_bad_examples_leave_running_statistics_alone(tmp_path):
    x = np.random.default_rng(0).standard_normal((20, 2))
    x[3] = np.inf
    log = make_npz_log(tmp_path, x, np.zeros(20, int), 6)
    reader = StreamReader(log.path, 4, standardise="running", on_bad_input="skip")
    assert all(np.isfinite(batch.x).all() for batch in reader)
    good = np.delete(x, 3, axis=0).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(reader.state()["standardiser"]["mean"], good.mean(0), rtol=1e-12)
    assert (reader.skipped, reader.delivered) == (1, 19)


def test_a_stream_of_bad_examples_is_an_error(tmp_path):
    log = make_npz_log(tmp_path, np.full((5, 2), np.nan), np.zeros(5, int), 2)
    with pytest.raises(DataError, match="all 5 were skipped"):
        list(StreamReader(log.path, 2, on_bad_input="skip"))


def test_refusals(digits_log, tmp_path):
    with pytest.raises(ConfigError, match="a batch of 131 examples does not fit the stream's 130"):
        StreamReader(digits_log, 131)
    with pytest.raises(ConfigError, match="batch of 0"):
        StreamReader(digits_log, 0)
    with pytest.raises(ConfigError, match="offset 131 is outside"):
        StreamReader(digits_log, 8, 131)
    with pytest.raises(MissingDataError):
        StreamReader(tmp_path, 8)


def test_a_missing_segment_that_nobody_writes_is_an_error_not_a_hang(tmp_path):
    config = StreamConfig(source="digits", seed=1, limit=30, segment_length=10)
    log = make_log(tmp_path, config)
    log.segment_path(1).unlink()
    reader = StreamReader(tmp_path, 10)
    next(reader)
    with pytest.raises(FormatError, match="nobody is writing it"):
        next(reader)


def test_a_log_that_another_process_writes_is_tailed(tmp_path):
    import threading
    import time

    config = StreamConfig(source="digits", seed=1, limit=30, segment_length=10)
    source = open_source(config)
    log = create_log(tmp_path, config, source)

    def write():
        with FolderLock(tmp_path):
            started.set()
            for segment in range(3):
                time.sleep(0.1)
                log.write_segment(segment, source.read(*log.span(segment)))

    started = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    assert [batch.offset for batch in StreamReader(tmp_path, 7)] == [7, 14, 21, 28, 30]
    writer.join()


def test_consumed_segments_are_dropped(tmp_path):
    config = StreamConfig(source="digits", seed=1, limit=50, segment_length=10, drop_consumed=True)
    log = make_log(tmp_path, config)
    kept = []
    for _ in (reader := StreamReader.from_config(tmp_path, 8, config)):
        kept.append(log.present()[0] if log.present() else None)
    assert kept == [0, 0, 1, 2, 2, 4, None]
    assert reader.offset == 50


def test_from_config_takes_every_option(digits_log):
    config = StreamConfig(
        source="digits",
        seed=1,
        limit=130,
        segment_length=17,
        standardise="running",
        flatten=True,
        on_bad_input="skip",
    )
    batch = next(StreamReader.from_config(digits_log, 8, config, offset=9))
    assert batch.x.shape == (8, 64)
    assert batch.origins[0] == 9
    wrong = replace(config, standardise=GivenStatistics(mean=(1.0, 2.0), std=1.0))
    with pytest.raises(ConfigError, match="one number or"):
        StreamReader.from_config(digits_log, 8, wrong)
    with pytest.raises(ConfigError, match="another stream: its seed is 1, not 2"):
        StreamReader.from_config(digits_log, 8, replace(config, seed=2))
