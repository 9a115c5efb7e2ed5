"""Beam writes the same log with one worker, with several, and after a kill; failures are one line."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from lamina.durable import FolderLock
from lamina.errors import BusyError, ConfigError, DataError, StorageError
from lamina.stream import StreamConfig, StreamReader, build_log, open_source
from lamina.stream.augment import augment_images
from lamina.stream.pipeline import known_failure, pipeline_options


def digests(path):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.iterdir())
        if file.name.startswith(("segment", "header"))
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (100, 12, 10, 3)).astype(np.uint8)
    np.savez(folder / "i.npz", x_train=images, y_train=np.arange(100) % 5)
    return StreamConfig(source=f"npz:{folder / 'i.npz'}", seed=3, augment="cifar", segment_length=8)


@pytest.fixture(scope="module")
def built(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "log"
    calls = []
    build_log(config, path, progress=lambda *counts: calls.append(counts))
    assert calls == [(13, 13)]
    return path


def test_log_is_the_augmented_source_in_order(config, built):
    source = open_source(config).read(0, 100)
    expected = augment_images(source["x"], 3, 0)
    batches = list(StreamReader(built, 16))
    np.testing.assert_array_equal(np.concatenate([each.x for each in batches]), expected, strict=True)
    np.testing.assert_array_equal(np.concatenate([each.y for each in batches]), source["y"], strict=True)


def test_several_workers_write_the_same_bytes(config, built, tmp_path):
    options = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    build_log(replace(config, runner_options=options), tmp_path / "log")
    assert digests(tmp_path / "log") == digests(built)


def test_a_killed_pipeline_is_continued_to_the_same_bytes(config, built, tmp_path):
    code = (
        "import sys\n"
        "from lamina.stream import build_log\n"
        "from lamina.stream import writing\n"
        "from lamina.stream.config import config_from_json\n"
        "writing._WINDOW = 2\n"
        "build_log(config_from_json(sys.argv[1]), sys.argv[2])\n"
    )
    import json

    from lamina.stream.config import config_to_json

    path = tmp_path / "log"
    command = [sys.executable, "-c", code, json.dumps(config_to_json(config)), str(path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(list(path.glob("segment-*"))) < 3:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {file.name: file.stat().st_mtime_ns for file in path.glob("segment-*")}
    assert 3 <= len(kept) < 13
    damaged = path / "segment-000000001.npz"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    (path / ".segment-000000012.npz.abc").write_bytes(b"left by the kill")
    build_log(config, path)
    assert digests(path) == digests(built)
    assert not list(path.glob(".segment*"))
    for name in kept.keys() - {damaged.name}:
        assert (path / name).stat().st_mtime_ns == kept[name]  # intact segments are not written again


def test_augmentation_against_a_slow_reference():
    from lamina.stream.randomness import generator

    images = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3)).astype(np.uint8)
    out = augment_images(images, 7, 1000)
    flipped = 0
    for row, image in enumerate(images):
        draw = generator(7, "augment", 1000 + row)
        top, left = draw.integers(0, 9, size=2) - 4
        flip = draw.random() < 0.5
        flipped += flip
        for h, w in ((0, 0), (0, 31), (31, 0), (15, 16), (31, 31)):
            y, x = top + h, left + (31 - w if flip else w)
            y, x = (31 - abs(31 - abs(each)) for each in (y, x))  # reflection at both borders
            np.testing.assert_array_equal(out[row, h, w], image[y, x])
    assert 15 < flipped < 45
    np.testing.assert_array_equal(augment_images(images[9:20], 7, 1009), out[9:20])


def test_augmenting_what_is_no_image_is_refused():
    with pytest.raises(ConfigError, match="height, width, channels"):
        open_source(StreamConfig(source="teacher_student", augment="cifar"))


def test_empty_source_is_an_error_not_a_success(tmp_path):
    np.savez(tmp_path / "e.npz", x_train=np.zeros((0, 3)), y_train=np.zeros(0, int))
    with pytest.raises(DataError, match="is empty"):
        build_log(StreamConfig(source=f"npz:{tmp_path / 'e.npz'}"), tmp_path / "log")
    assert not (tmp_path / "log" / "header.json").exists()


def test_full_disk_during_the_pipeline(config, tmp_path, monkeypatch):
    build_log(replace(config, limit=8), tmp_path / "log")

    def refuse(descriptor):
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / "log" / "segment-000000000.npz").unlink()
    monkeypatch.setattr("lamina.durable.os.fsync", refuse)
    with pytest.raises(StorageError, match="disk is full") as caught:
        build_log(replace(config, limit=8), tmp_path / "log")
    assert "\n" not in str(caught.value)
    assert "while running" not in str(caught.value)


def test_data_that_shrinks_while_it_is_read(config, tmp_path, monkeypatch):
    from lamina.stream.sources import shared_source
    from lamina.stream.sources.table import OrderedSource

    read = OrderedSource.read
    monkeypatch.setattr(OrderedSource, "read", lambda self, start, stop: read(self, start, min(stop, 30)))
    with pytest.raises(DataError, match="ended at example 30, expected 32"):
        build_log(config, tmp_path / "log")
    shared_source.cache_clear()


def test_endless_stream_needs_a_limit(tmp_path):
    with pytest.raises(ConfigError, match="set limit"):
        build_log(StreamConfig(source="teacher_student"), tmp_path / "log")


def test_one_writer_per_log(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lamina.stream.writing._PATIENCE_SECONDS", 0.05)
    with FolderLock(tmp_path), pytest.raises(BusyError, match=f"process {os.getpid()}"):
        build_log(config, tmp_path)


def test_building_another_split(tmp_path):
    np.savez(tmp_path / "s.npz", x_train=np.ones((9, 2)), y_train=np.zeros(9), x_test=np.zeros((4, 2)),
             y_test=np.zeros(4))  # fmt: skip
    log = build_log(StreamConfig(source=f"npz:{tmp_path / 's.npz'}", limit=6), tmp_path / "log", "test")
    assert (log.total, log.content["split"]) == (4, "test")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--direct_num_wrokers=2",), "unknown runner option"),
        (("direct_num_workers=2",), "written --name=value"),
        (("--direct_running_mode=multi_threading",), "corrupts memory"),
    ],
)
def test_runner_options_are_checked(config, tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        build_log(replace(config, runner_options=options), tmp_path / "log")


def test_runner_options_reach_beam():
    from apache_beam.options.pipeline_options import DirectOptions, SetupOptions

    options = pipeline_options(("--direct_num_workers=3", "--no_save_main_session"))
    assert options.view_as(DirectOptions).direct_num_workers == 3
    assert options.view_as(SetupOptions).save_main_session is False


@pytest.mark.parametrize("runner", ["NoSuchRunner", "no.such.Runner"])
def test_unknown_runner(config, tmp_path, runner):
    with pytest.raises(ConfigError, match="unknown Beam runner"):
        build_log(replace(config, runner=runner), tmp_path / "log")


def test_another_runner_writes_the_same_bytes(config, built, tmp_path):
    dotted = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
    build_log(replace(config, runner=dotted), tmp_path / "log")
    assert digests(tmp_path / "log") == digests(built)


def test_failures_are_recognised_in_what_runners_make_of_them():
    text = (
        "Traceback (most recent call last):\n  File ...\nlamina.errors.StorageError: cannot write /x: full\n"
        "\nDuring handling of the above:\n\nlamina.errors.StorageError: cannot write /x: full [while running "
        "'ParDo(WriteSegment)']\n"
    )
    found = known_failure(RuntimeError(text))
    assert isinstance(found, StorageError)
    assert str(found) == "cannot write /x: full"
    found = known_failure(DataError("row 3 is bad [while running 'ParDo(WriteSegment)']"))
    assert (type(found), str(found)) == (DataError, "row 3 is bad")
    found = known_failure(RuntimeError("a\nb\n"))
    assert str(found) == "the stream's pipeline failed: RuntimeError: b"
