"""The background process: follows the reader, survives kills, fails loudly, dies with its parent."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from lamina.durable import FolderLock
from lamina.errors import BusyError, ConfigError, DataError, MissingDataError
from lamina.stream import LogBuilder, StreamConfig, StreamReader, TeacherOptions, open_log, open_source

ENDLESS = StreamConfig(
    source="teacher_student",
    seed=1,
    teacher=TeacherOptions(inputs=5, width=5),
    segment_length=10,
    lead_segments=4,
    drop_consumed=True,
)


def alive(pid):
    """Whether a process holds anything: it does until its last thread ends, even where the first has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ended = file.read().rpartition(")")[2].split()[0] == "Z"
        return not ended or len(os.listdir(f"/proc/{pid}/task")) > 1
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_an_endless_stream_is_followed_killed_and_continued(tmp_path):
    expected = open_source(ENDLESS).read(0, 600)
    builder = LogBuilder(ENDLESS, tmp_path).start()
    reader = StreamReader.from_config(tmp_path, 7, ENDLESS, builder=builder)
    got = [next(reader) for _ in range(12)]
    wait_until(lambda: len(open_log(tmp_path).present()) >= 3)
    time.sleep(0.3)
    position = reader.offset // 10
    assert max(open_log(tmp_path).present()) < position + 4 + 1  # a bounded lead
    assert min(open_log(tmp_path).present()) >= position - 1  # and a bounded tail
    state = reader.state()
    for _ in range(4):
        next(reader)  # goes on without a commit, so that the restore below goes back over dropped segments
    os.kill(builder.pid, signal.SIGKILL)
    wait_until(lambda: not alive(builder.pid))
    with pytest.raises(DataError, match=r"ended unexpectedly.*builder\.log"):
        list(reader)
    builder.stop()

    with LogBuilder(ENDLESS, tmp_path, state["offset"]) as builder:
        reader = StreamReader.from_config(tmp_path, 7, ENDLESS, state["offset"], builder)
        reader.restore(state)
        got += [next(reader) for _ in range(30)]
        pid = builder.pid
    assert not alive(pid)
    x = np.concatenate([batch.x for batch in got])
    np.testing.assert_array_equal(x, expected["x"][: len(x)], strict=True)
    assert [batch.offset for batch in got] == list(range(7, 7 * 42 + 1, 7))


def test_a_batch_longer_than_the_lead_is_no_deadlock_and_the_end_is_reached(tmp_path):
    config = replace(ENDLESS, limit=45, lead_segments=1, drop_consumed=False)
    with LogBuilder(config, tmp_path) as builder:
        reader = StreamReader.from_config(tmp_path, 35, config, builder=builder)
        assert [batch.offset for batch in reader] == [35, 45]
        wait_until(lambda: not builder.poll())
        assert open_log(tmp_path).present() == [0, 1, 2, 3, 4]

        # A damaged segment of a finished log is written anew by the next builder.
        damaged = open_log(tmp_path).segment_path(2)
        intact = damaged.read_bytes()
        damaged.write_bytes(intact[:-100])
    with LogBuilder(config, tmp_path) as builder:
        reader = StreamReader.from_config(tmp_path, 35, config, builder=builder)
        assert [batch.offset for batch in reader] == [35, 45]
    assert damaged.read_bytes() == intact


def test_failures_reach_the_reader_as_they_were_met(tmp_path):
    def failure(config, path, kind, words):
        with LogBuilder(config, path) as builder:
            with pytest.raises(kind, match=words) as caught:
                next(StreamReader.from_config(path, 2, config, builder=builder))
            with pytest.raises(kind):
                builder.poll()  # it stays failed
        assert "\n" not in str(caught.value)

    missing = StreamConfig(source=f"npz:{tmp_path}/none.npz")
    failure(missing, tmp_path / "a", MissingDataError, r"none\.npz and found no file")
    failure(replace(ENDLESS, runner="Nope"), tmp_path / "b", ConfigError, "unknown Beam runner")


def test_a_second_builder_is_refused(tmp_path):
    with FolderLock(tmp_path), LogBuilder(ENDLESS, tmp_path) as builder:
        with pytest.raises(BusyError, match=f"process {os.getpid()}"):
            wait_until(lambda: not builder.poll())


def test_it_dies_with_its_parent(tmp_path):
    code = (
        "import sys, time\n"
        "from lamina.stream import LogBuilder, StreamConfig, StreamReader\n"
        "config = StreamConfig(source='teacher_student', segment_length=10, lead_segments=4)\n"
        "builder = LogBuilder(config, sys.argv[1]).start()\n"
        "next(StreamReader(sys.argv[1], 5, builder=builder))\n"
        "print(builder.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    wait_until(lambda: not alive(pid), 10.0)
    FolderLock(tmp_path).close()  # nobody holds the log any more


def test_stopping_is_harmless_whenever(tmp_path):
    builder = LogBuilder(ENDLESS, tmp_path)
    builder.stop()
    assert not builder.poll()
    builder = builder.start()
    assert builder.poll()
    builder.stop()
    builder.stop()
    assert not builder.poll()
