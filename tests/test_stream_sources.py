"""Every source keeps the contract: a pure function of (config, seed, offset)."""

import gzip
import json
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from biographies import SMALL
from lamina.errors import ConfigError, DataError, MissingDataError
from lamina.stream import StreamConfig, TeacherOptions, list_sources, open_source, read_good
from lamina.stream.randomness import generator


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture(scope="module")
def idx_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("idx")
    draw = np.random.default_rng(0)
    for prefix, count, ending in (("train", 40, ".gz"), ("t10k", 10, "")):
        write_idx(folder / f"{prefix}-images-idx3-ubyte{ending}", draw.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{ending}", np.arange(count) % 10)
    return folder


@pytest.fixture(scope="module")
def configs(idx_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    draw = np.random.default_rng(1)
    np.savez(
        folder / "a.npz",
        x_train=draw.standard_normal((30, 4)),
        y_train=np.arange(30) % 3,
        x_test=draw.standard_normal((6, 4)),
        y_test=np.arange(6) % 3,
    )
    (folder / "a.csv").write_text("u,v,w\n" + "".join(f"{i},{i * i},{i % 2}\n" for i in range(25)))
    return {
        "digits": StreamConfig(source="digits", seed=3),
        "fashion_mnist": StreamConfig(source="fashion_mnist", seed=3, folder=str(idx_folder)),
        "npz": StreamConfig(source=f"npz:{folder / 'a.npz'}", seed=3),
        "files": StreamConfig(source=f"files:{folder}/*.csv", seed=3, target="w", classes=2),
        "teacher_student": StreamConfig(source="teacher_student", seed=3, limit=90),
        "biography": StreamConfig(source="biography", seed=3, limit=90, biography=SMALL),
    }


SOURCES = ["digits", "fashion_mnist", "npz", "files", "teacher_student", "biography"]


@pytest.mark.parametrize("name", SOURCES)
def test_contract(name, configs):
    source = open_source(configs[name])
    n = min(source.length, 70)
    whole = source.read(0, n)
    assert whole["x"].shape == (n, *source.schema.x.shape)
    assert whole["y"].shape == (n, *source.schema.y.shape)
    assert whole["x"].dtype == source.schema.x.dtype
    assert whole["y"].dtype == source.schema.y.dtype
    assert not whole["problems"].any()
    again = open_source(configs[name])
    for start, stop in ((0, 1), (1, 2), (5, 17), (17, n), (3, 3)):
        part = again.read(start, stop)
        for key in ("x", "y", "problems"):
            np.testing.assert_array_equal(part[key], whole[key][start:stop], strict=True)


@pytest.mark.parametrize("name", SOURCES)
def test_ends_where_its_length_says(name, configs):
    source = open_source(configs[name])
    assert len(source.read(source.length - 2, source.length + 5)["x"]) == 2
    assert len(source.read(source.length + 1, source.length + 5)["x"]) == 0
    limited = open_source(replace(configs[name], limit=7))
    assert limited.length == 7
    np.testing.assert_array_equal(limited.read(0, 100)["x"], source.read(0, 7)["x"])


@pytest.mark.parametrize("name", ["digits", "fashion_mnist", "npz", "files"])
def test_shuffling_is_a_permutation_drawn_from_the_seed(name, configs):
    def rows(config):
        source = open_source(config)
        arrays = source.read(0, source.length)
        return [(x.tobytes(), y.tobytes()) for x, y in zip(arrays["x"], arrays["y"], strict=True)]

    stored = rows(replace(configs[name], shuffle=False))
    first, second = rows(configs[name]), rows(replace(configs[name], seed=4))
    assert sorted(first) == sorted(second) == sorted(stored)
    assert len({tuple(first), tuple(second), tuple(stored)}) == 3


def test_every_source_is_listed_with_one_line():
    listed = list_sources()
    kinds = {spec.partition(":")[0] for spec, _ in listed}
    built_in = {"digits", "fashion_mnist", "tfds", "npz", "files", "teacher_student", "biography", "river"}
    assert kinds == built_in
    assert all(line and "\n" not in line for _, line in listed)


def test_digits_are_split_once_for_all():
    train = open_source(StreamConfig(source="digits", seed=1, shuffle=False))
    test = open_source(StreamConfig(source="digits", seed=2), "test")
    assert (train.length, test.length) == (1438, 359)
    assert train.schema.x.shape == (8, 8, 1)
    x = {image.tobytes() for image in read_good(train, 0, 1438)[0]}
    held = [image.tobytes() for image in read_good(test, 0, 359)[0]]
    assert sum(image in x for image in held) <= 2  # the data set itself has a few equal images
    counts = np.bincount(read_good(test, 0, 359)[1])
    assert counts.min() >= 34


def test_fashion_mnist_reads_plain_and_gzipped_files(idx_folder):
    config = StreamConfig(source="fashion_mnist", folder=str(idx_folder), shuffle=False)
    source = open_source(config)
    expected = np.random.default_rng(0).integers(0, 256, (40, 28, 28)).astype(np.uint8)
    np.testing.assert_array_equal(source.read(0, 40)["x"][..., 0], expected)
    assert open_source(config, "test").length == 10
    assert source.schema.classes[9] == "Ankle boot"


@pytest.mark.parametrize("damage", ["cut", "cut gzip", "foreign", "header only"])
def test_damaged_idx_file_is_refused(tmp_path, damage):
    for prefix in ("train", "t10k"):
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte", np.zeros((4, 28, 28)))
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte", np.zeros(4))
    path = tmp_path / "train-images-idx3-ubyte"
    content = path.read_bytes()
    if damage == "cut gzip":
        path.with_suffix(".gz").write_bytes(gzip.compress(content)[:-20])
    else:
        path.write_bytes({"cut": content[:-5], "foreign": b"hello" * 9, "header only": content[:7]}[damage])
    with pytest.raises(DataError) as caught:
        open_source(StreamConfig(source="fashion_mnist", folder=str(tmp_path)))
    assert "\n" not in str(caught.value)
    assert "train-images" in str(caught.value)


def test_missing_fashion_mnist_says_where_it_looked(tmp_path):
    with pytest.raises(MissingDataError, match=f"in {tmp_path} and found none"):
        open_source(StreamConfig(source="fashion_mnist", folder=str(tmp_path)))


def test_missing_tfds_fails_at_once_without_importing_it(tmp_path):
    code = (
        "import sys, time\n"
        "from lamina.stream import StreamConfig, open_source\n"
        "start = time.monotonic()\n"
        f"try: open_source(StreamConfig(source='tfds:cifar10', folder={str(tmp_path)!r}))\n"
        "except FileNotFoundError as error: print(error)\n"
        "print(time.monotonic() - start, 'tensorflow_datasets' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, figures = done.stdout.splitlines()
    assert str(tmp_path) in message
    assert "lamina stream import" in message
    assert float(figures.split()[0]) < 1.0
    assert figures.endswith("False")


def test_importing_the_room_is_light():
    code = (
        "import sys, lamina.stream, lamina.stream.build\n"
        "heavy = {'jax', 'apache_beam', 'tensorflow_datasets', 'sklearn', 'pyarrow', 'PIL'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_teacher_follows_the_paper():
    config = StreamConfig(
        source="teacher_student", seed=5, teacher=TeacherOptions(inputs=7, width=11, layers=3, outputs=2)
    )
    source = open_source(config)
    assert source.length is None
    arrays = source.read(1_000_000, 1_000_200)
    x = arrays["x"].astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-6)
    draw = generator(5, "teacher weights")  # the slow reference: matrix products, one by one
    shapes = [(11, 7), (11, 11), (11, 11), (2, 11)]
    w1, w2, w3, out = (draw.standard_normal(shape) / np.sqrt(shape[1]) for shape in shapes)
    for row in range(0, 200, 17):
        hidden = np.maximum(w1 @ x[row], 0)
        hidden = hidden + np.maximum(w2 @ hidden, 0)
        hidden = hidden + np.maximum(w3 @ hidden, 0)
        np.testing.assert_allclose(arrays["y"][row], out @ hidden, rtol=1e-6, atol=1e-7)


def test_teacher_inputs_are_uniform_and_splits_independent():
    config = StreamConfig(source="teacher_student", seed=5, teacher=TeacherOptions(inputs=10))
    x = open_source(config).read(0, 4000)["x"]
    np.testing.assert_allclose(x.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(x.T @ x / 4000, np.eye(10) / 10, atol=0.02)
    test = open_source(config, "test").read(0, 4000)["x"]
    assert len({row.tobytes() for row in np.concatenate([x, test])}) == 8000


def test_limit_is_of_the_streamed_split_only(configs):
    config = replace(configs["npz"], limit=5)
    assert open_source(config).length == 5
    assert open_source(config, "test").length == 6


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("digit", "did you mean digits"),
        ("npz", "npz:FILE"),
        ("digits:x", "digits"),
        ("nonsense", "did you mean"),
    ],
)
def test_unknown_or_malformed_spec(source, words):
    with pytest.raises(ConfigError, match=words):
        open_source(StreamConfig(source=source))


def test_unknown_split_names_those_there_are():
    with pytest.raises(ConfigError, match="train, test, not 'valid'"):
        open_source(StreamConfig(source="digits"), "valid")


def test_npz_faults(tmp_path):
    def opened(**arrays):
        np.savez(tmp_path / "f.npz", **arrays)
        return open_source(StreamConfig(source=f"npz:{tmp_path / 'f.npz'}"))

    x = np.zeros((4, 2))
    with pytest.raises(DataError, match="x_train has 4 rows and y_train 3"):
        opened(x_train=x, y_train=np.zeros(3, int))
    with pytest.raises(DataError, match="expected an array y_train"):
        opened(x_train=x)
    with pytest.raises(DataError, match="real numbers"):
        opened(x_train=x.astype(complex), y_train=np.zeros(4, int))
    with pytest.raises(DataError, match="is empty"):
        opened(x_train=x[:0], y_train=np.zeros(0, int))
    content = (tmp_path / "f.npz").read_bytes()
    (tmp_path / "f.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="damaged or foreign"):
        open_source(StreamConfig(source=f"npz:{tmp_path / 'f.npz'}"))
    with pytest.raises(MissingDataError):
        open_source(StreamConfig(source=f"npz:{tmp_path / 'none.npz'}"))


def test_float64_beyond_float32_and_odd_labels_are_marked(tmp_path):
    x = np.ones((6, 2))
    x[1, 0], x[2, 1], x[3, 0] = np.nan, np.inf, 1e300
    np.savez(tmp_path / "f.npz", x_train=x, y_train=np.array([0, 1, 2, 1, -1, 7]))
    config = StreamConfig(source=f"npz:{tmp_path / 'f.npz'}", shuffle=False, classes=3)
    source = open_source(config)
    assert source.read(0, 6)["problems"].tolist() == [0, 1, 1, 1, 2, 2]
    good, labels = read_good(source, 0, 6, "skip")
    assert (len(good), labels.tolist()) == (1, [0])
    with pytest.raises(DataError, match="example 1 "):
        read_good(source, 0, 6)


def test_npz_floats_are_regression(tmp_path):
    np.savez(tmp_path / "f.npz", x_train=np.ones((3, 2)), y_train=np.array([0.5, 1.5, 2.5]))
    source = open_source(StreamConfig(source=f"npz:{tmp_path / 'f.npz'}", shuffle=False))
    assert source.schema.classes is None
    assert source.read(0, 3)["y"].tolist() == [[0.5], [1.5], [2.5]]


def test_generator_is_addressed_by_all_three():
    draws = {
        generator(seed, purpose, offset).random()
        for seed in (0, 1, 2**63)
        for purpose in ("a", "b")
        for offset in (0, 1, 2**40)
    }
    assert len(draws) == 18


def test_reading_is_fast_enough():
    source = open_source(StreamConfig(source="teacher_student", seed=0))
    start = time.monotonic()
    source.read(0, 2000)
    assert time.monotonic() - start < 5.0  # 0.06–0.2 s here


def test_schema_survives_json(configs):
    from lamina.stream import Schema

    for config in configs.values():
        schema = open_source(config).schema
        assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
