"""Streams made of other streams: the contract of a source, and what each of them changes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from lamina.errors import ConfigError, DataError
from lamina.stream import DriftOptions, StreamConfig, open_log, open_source
from lamina.stream.log import create_log

DIGITS = StreamConfig(source="digits", seed=3)
CHANGED = {
    "classes": replace(DIGITS, only_classes=(7, 2)),
    "rotated": replace(DIGITS, rotate=30.0),
    "permuted": replace(DIGITS, permute=5),
    "noisy": replace(DIGITS, label_noise=0.3),
    "drifting": replace(DIGITS, drift=DriftOptions(start=20, length=30, rotate=90.0)),
    "all": replace(
        DIGITS,
        only_classes=(1, 2, 3),
        rotate=10.0,
        permute=1,
        label_noise=0.5,
        limit=90,
        drift=DriftOptions(start=10, length=20, permute=2, only_classes=(4, 5)),
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_contract(name: str) -> None:
    source = open_source(CHANGED[name])
    n = min(source.length, 80)
    whole = source.read(0, n)
    assert whole["x"].shape == (n, 8, 8, 1)
    assert whole["x"].dtype == source.schema.x.dtype
    assert whole["x"].dtype == np.uint8
    assert whole["y"].dtype == np.int32
    again = open_source(CHANGED[name])
    for start, stop in ((0, 1), (5, 17), (17, n), (3, 3)):
        part = again.read(start, stop)
        for key in ("x", "y", "problems"):
            np.testing.assert_array_equal(part[key], whole[key][start:stop], strict=True)
    assert len(source.read(source.length - 2, source.length + 5)["x"]) == 2
    assert len(source.read(source.length + 1, source.length + 5)["x"]) == 0


def test_only_some_classes_come_in_the_order_of_the_seed() -> None:
    source = open_source(CHANGED["classes"])
    y = source.read(0, source.length)["y"]
    counts = np.bincount(open_source(DIGITS).read(0, 1438)["y"])
    assert source.length == counts[2] + counts[7]
    assert set(y.tolist()) == {2, 7}
    assert 0.3 < np.mean(y[:100] == 7) < 0.7  # shuffled
    assert len(source.schema.classes) == 10  # the outputs are for all of them
    test = open_source(CHANGED["classes"], "test")
    assert set(test.read(0, test.length)["y"].tolist()) == {2, 7}
    limited = open_source(replace(CHANGED["classes"], limit=5))
    np.testing.assert_array_equal(limited.read(0, 9)["y"], y[:5])


def test_turning_by_right_angles_is_exact_and_by_others_keeps_the_mass_inside() -> None:
    plain = open_source(DIGITS).read(0, 50)["x"]
    for turns in (1, 2, 3):
        turned = open_source(replace(DIGITS, rotate=90.0 * turns)).read(0, 50)["x"]
        np.testing.assert_array_equal(turned, np.rot90(plain, turns, axes=(1, 2)))
    slanted = open_source(CHANGED["rotated"]).read(0, 50)["x"]
    assert slanted.max() <= 16
    inner = slice(2, 6), slice(2, 6)
    assert abs(slanted[:, *inner].mean() / plain[:, *inner].mean() - 1) < 0.1
    with pytest.raises(ConfigError, match="rotate expects images"):
        open_source(replace(DIGITS, source="teacher_student", rotate=1.0))


def test_one_order_of_pixels_for_all_examples_and_splits() -> None:
    for split in (None, "test"):
        plain, permuted = (
            open_source(config, split).read(0, 50)["x"] for config in (DIGITS, CHANGED["permuted"])
        )
        order = (
            np.random.Generator
        )  # the order is found from the data: pixel j of the new is pixel k of the old
        del order
        old, new = plain.reshape(50, 64), permuted.reshape(50, 64)
        assert not np.array_equal(old, new)
        assert sorted(map(tuple, old.T.tolist())) == sorted(map(tuple, new.T.tolist()))
    other = open_source(replace(DIGITS, permute=6)).read(0, 50)["x"]
    assert not np.array_equal(other, open_source(CHANGED["permuted"]).read(0, 50)["x"])


def test_noise_replaces_a_share_of_the_labels_by_others_but_not_of_held_out_ones() -> None:
    plain, noisy = (open_source(config).read(0, 1438)["y"] for config in (DIGITS, CHANGED["noisy"]))
    wrong = plain != noisy
    assert abs(wrong.mean() - 0.3) < 0.04
    moved = (noisy - plain)[wrong] % 10
    assert np.bincount(moved, minlength=10)[1:].min() > 20  # every other class
    held = [open_source(config, "test").read(0, 359)["y"] for config in (DIGITS, CHANGED["noisy"])]
    np.testing.assert_array_equal(*held)
    certain = open_source(replace(DIGITS, label_noise=1.0)).read(0, 500)["y"]
    assert (certain != plain[:500]).all()


@pytest.mark.parametrize(("start", "length"), [(400, 0), (300, 600)])
def test_drift_goes_over_at_once_or_little_by_little(start: int, length: int) -> None:
    drift = DriftOptions(start=start, length=length, rotate=90.0)
    plain, turned, mixed = (
        open_source(config).read(0, 1400)["x"].reshape(1400, -1)
        for config in (DIGITS, replace(DIGITS, rotate=90.0), replace(DIGITS, drift=drift))
    )
    old, new = (mixed == plain).all(axis=1), (mixed == turned).all(axis=1)
    assert (old | new).all()
    assert old[:start].all()
    assert new[start + length :].all()
    if length:
        for third, share in enumerate((1 / 6, 1 / 2, 5 / 6)):
            part = new[start + 200 * third : start + 200 * (third + 1)]
            assert abs(part.mean() - share) < 0.12
    before = open_source(replace(DIGITS, drift=drift), "test").read(0, 20)["x"]
    np.testing.assert_array_equal(before, open_source(DIGITS, "test").read(0, 20)["x"])


def test_drift_between_two_sources_ends_with_the_shorter(tmp_path) -> None:
    draw = np.random.default_rng(0)
    for name, rows in (("a", 30), ("b", 20), ("c", 20)):
        size = 4 if name != "c" else 5
        np.savez(
            tmp_path / f"{name}.npz", x_train=draw.normal(size=(rows, size)), y_train=np.arange(rows) % 3
        )
    config = StreamConfig(source=f"npz:{tmp_path / 'a.npz'}", shuffle=False)
    drift = DriftOptions(start=5, source=f"npz:{tmp_path / 'b.npz'}")
    mixed = open_source(replace(config, drift=drift))
    assert mixed.length == 20
    other = open_source(replace(config, source=drift.source)).read(0, 20)["x"]
    np.testing.assert_array_equal(mixed.read(0, 20)["x"][5:], other[5:])
    with pytest.raises(ConfigError, match="drift: expected a source of the same shapes"):
        open_source(replace(config, drift=replace(drift, source=f"npz:{tmp_path / 'c.npz'}")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only_classes": (3, 10)}, "labels from 0 to 9; found 10"),
        ({"source": "teacher_student", "only_classes": (1,)}, "only_classes expects data with classes"),
        ({"source": "teacher_student", "label_noise": 0.1}, "label_noise expects data with at least two"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source(replace(DIGITS, **changes))
    with pytest.raises(DataError, match="is empty"):
        open_source(replace(DIGITS, only_classes=()))


def test_a_log_of_an_earlier_version_is_still_its_stream(tmp_path) -> None:
    create_log(tmp_path, DIGITS, open_source(DIGITS))
    header = json.loads((tmp_path / "header.json").read_text())
    for name in ("only_classes", "rotate", "permute", "label_noise", "drift"):
        del header["config"][name]
    (tmp_path / "header.json").write_text(json.dumps(header))
    create_log(tmp_path, DIGITS, open_source(DIGITS))
    with pytest.raises(ConfigError, match=r"its rotate is 0\.0, not 30\.0"):
        create_log(tmp_path, CHANGED["rotated"], open_source(CHANGED["rotated"]))
    assert open_log(tmp_path).content["drift"] is None
