"""The log's files: deterministic bytes, checked on reading, versions and foreign content refused."""

import errno
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from lamina.errors import ConfigError, FormatError, MissingDataError, StorageError
from lamina.stream import StreamConfig, describe_log, open_log, open_source
from lamina.stream.log import create_log, publish_position, published_position

CONFIG = StreamConfig(source="teacher_student", seed=1, limit=25, segment_length=10)


@pytest.fixture
def log(tmp_path):
    source = open_source(CONFIG)
    log = create_log(tmp_path / "log", CONFIG, source)
    for segment in range(3):
        log.write_segment(segment, source.read(*log.span(segment)))
    return log


def test_segments_hold_the_stream(log):
    assert (log.segments, log.total, log.present()) == (3, 25, [0, 1, 2])
    assert log.span(2) == (20, 25)
    expected = open_source(CONFIG).read(0, 25)
    for segment in range(3):
        start, stop = log.span(segment)
        for name, array in log.read_segment(segment).items():
            np.testing.assert_array_equal(array, expected[name][start:stop], strict=True)


def test_bytes_depend_on_nothing_but_content(log):
    first = log.segment_path(1).read_bytes()
    time.sleep(2.1)  # the resolution of a zip file's time stamps
    log.write_segment(1, log.read_segment(1))
    assert log.segment_path(1).read_bytes() == first


def test_every_flipped_byte_of_the_data_is_noticed(log):
    path = log.segment_path(0)
    whole = path.read_bytes()
    noticed = 0
    for position in range(200, len(whole) - 400, 211):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            arrays = log.read_segment(0)
        except FormatError:
            noticed += 1
        else:  # a byte of a header that says nothing about the data
            np.testing.assert_array_equal(arrays["x"], open_source(CONFIG).read(0, 10)["x"])
    assert noticed >= 10


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_truncated_segment_is_refused(log, keep):
    content = log.segment_path(0).read_bytes()
    size = keep if isinstance(keep, int) else int(keep * len(content))
    log.segment_path(0).write_bytes(content[:size])
    with pytest.raises(FormatError, match="damaged"):
        log.read_segment(0)
    assert not log.is_intact(0)
    assert log.is_intact(1)


def test_segment_of_another_place_is_refused(log):
    log.segment_path(0).write_bytes(log.segment_path(1).read_bytes())
    with pytest.raises(FormatError, match="another log"):
        log.read_segment(0)


def test_header_faults(log):
    file = log.path / "header.json"
    header = json.loads(file.read_bytes())
    file.write_text(json.dumps({**header, "version": 2}))
    with pytest.raises(FormatError, match="version 2, this Lamina reads up to 1"):
        open_log(log.path)
    for content in ("", "[]", "{}", json.dumps({**header, "format": "x"}), json.dumps(header)[:-9]):
        file.write_text(content)
        with pytest.raises(FormatError, match="damaged or foreign"):
            open_log(log.path)
    file.unlink()
    with pytest.raises(MissingDataError, match=r"no header\.json"):
        open_log(log.path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 2}, "its seed is 1, not 2"),
        ({"segment_length": 5}, "segment_length"),
        ({"limit": 24}, "limit"),
    ],
)
def test_a_folder_keeps_to_one_stream(log, change, words):
    config = replace(CONFIG, **change)
    with pytest.raises(ConfigError, match=words):
        create_log(log.path, config, open_source(config))


def test_how_the_reader_prepares_is_no_part_of_the_log(log):
    config = replace(CONFIG, standardise="running", flatten=True, on_bad_input="skip", lead_segments=3)
    assert create_log(log.path, config, open_source(config)).present() == [0, 1, 2]


def test_full_and_readonly_disks_are_one_line_and_lose_nothing(log, monkeypatch):
    before = log.segment_path(0).read_bytes()
    for code, words in ((errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")):

        def refuse(descriptor, code=code):
            raise OSError(code, "refused")

        with monkeypatch.context() as patch:
            patch.setattr("lamina.durable.os.fsync", refuse)
            with pytest.raises(StorageError, match=words):
                log.write_segment(0, log.read_segment(1))
    assert log.segment_path(0).read_bytes() == before
    assert not list(log.path.glob(".segment*"))


def test_position_is_published(tmp_path):
    assert published_position(tmp_path) == 0
    publish_position(tmp_path, 12345)
    assert published_position(tmp_path) == 12345
    assert [path.name for path in tmp_path.iterdir()] == ["position"]


def test_description(log):
    found = json.loads(json.dumps(describe_log(log.path, examples=2)))
    assert (found["total"], found["segments"], found["segments_present"]) == (25, 3, 3)
    assert found["bytes"] == sum(path.stat().st_size for path in log.path.glob("*.npz"))
    assert [each["offset"] for each in found["first"]] == [0, 1]
    x = open_source(CONFIG).read(1, 2)["x"]
    assert found["first"][1]["x_max"] == float(x.max())


def test_description_names_labels(tmp_path):
    config = StreamConfig(source="digits", seed=1, limit=5, classes=tuple("abcdefghij"))
    source = open_source(config)
    log = create_log(tmp_path, config, source)
    log.write_segment(0, source.read(0, 5))
    for row, example in enumerate(describe_log(tmp_path)["first"]):
        assert example["label"] == "abcdefghij"[int(source.read(row, row + 1)["y"][0])]
