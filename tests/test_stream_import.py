"""Importing: official archives, image folders and .npz become tfds data sets, bit for bit."""

import io
import socket
import tarfile

import numpy as np
import pytest
from lamina.errors import ConfigError, DataError, MissingDataError
from lamina.stream import StreamConfig, import_dataset, open_source
from PIL import Image


def records(count, label_bytes, classes, seed):
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    labels = draw.integers(0, classes, (count, label_bytes)).astype(np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(count, -1)
    return images, labels[:, -1], np.concatenate([labels, planes], axis=1).tobytes()


def pack(path, folder, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def cifar10_files():
    batches = [records(6, 1, 10, seed) for seed in range(6)]
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    files = {name: batch[2] for name, batch in zip(names, batches, strict=True)}
    files["batches.meta.txt"] = ("\n".join(f"class{n}" for n in range(10)) + "\n\n").encode()
    train = tuple(np.concatenate([batch[part] for batch in batches[:5]]) for part in (0, 1))
    return files, train, batches[5][:2]


@pytest.fixture
def no_network(monkeypatch):
    """Connections to anywhere but this machine (Beam's workers) fail the test."""
    connect = socket.socket.connect

    def guarded(self, address):
        host = address[0] if isinstance(address, tuple) else "local"
        assert host in ("local", "localhost", "127.0.0.1", "::1"), f"reached for {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail(f"looked up {a}"))


def read_back(name, data_dir, split):
    source = open_source(StreamConfig(source=f"tfds:{name}", folder=str(data_dir), shuffle=False), split)
    arrays = source.read(0, source.length)
    assert not arrays["problems"].any()
    return source, arrays["x"], arrays["y"]


@pytest.mark.usefixtures("no_network")
def test_cifar10_archive_bit_for_bit(tmp_path):
    files, train, test = cifar10_files()
    archive = pack(tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", files)
    folder = import_dataset("cifar10", archive, "my_cifar10", tmp_path / "data")
    assert folder == tmp_path / "data" / "my_cifar10" / "1.0.0"
    for split, (images, labels) in (("train", train), ("test", test)):
        source, x, y = read_back("my_cifar10", tmp_path / "data", split)
        np.testing.assert_array_equal(x, images, strict=True)
        np.testing.assert_array_equal(y, labels)
        assert source.schema.classes[3] == "class3"

    spec = StreamConfig(source="tfds:my_cifar10:train[10:20]", folder=str(tmp_path / "data"), shuffle=False)
    np.testing.assert_array_equal(open_source(spec).read(0, 99)["x"], train[0][10:20])
    np.testing.assert_array_equal(open_source(spec).read(3, 5)["x"], train[0][13:15])
    shuffled = open_source(StreamConfig(source="tfds:my_cifar10", folder=str(tmp_path / "data"), seed=1))
    order = shuffled.read(0, 30)["x"]
    assert sorted(x.tobytes() for x in order) == sorted(x.tobytes() for x in train[0])
    with pytest.raises(ConfigError, match="splits train, test, not 'valid'"):
        read_back("my_cifar10", tmp_path / "data", "valid")
    with pytest.raises(ConfigError, match="exists already"):
        import_dataset("cifar10", archive, "my_cifar10", tmp_path / "data")


@pytest.mark.usefixtures("no_network")
def test_cifar100_extracted_files(tmp_path):
    images, labels, content = records(9, 2, 100, 0)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(content)
    (folder / "test.bin").write_bytes(records(4, 2, 100, 1)[2])
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine{n}" for n in range(100)))
    import_dataset("cifar100", folder, "c100", tmp_path / "data")
    source, x, y = read_back("c100", tmp_path / "data", "train")
    np.testing.assert_array_equal(x, images)
    np.testing.assert_array_equal(y, labels)
    assert len(source.schema.classes) == 100


def test_image_folder(tmp_path):
    draw = np.random.default_rng(0)
    expected = []
    for split in ("train", "test"):
        for label, name in enumerate(("ant", "bee")):
            (tmp_path / "images" / split / name).mkdir(parents=True)
            for number in range(3):
                pixels = draw.integers(0, 256, (7, 5, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / split / name / f"{number}.png")
                if split == "train":
                    expected.append((pixels, label))
    import_dataset("folder", tmp_path / "images", "insects", tmp_path / "data")
    source, x, y = read_back("insects", tmp_path / "data", "train")
    assert source.schema.classes == ("ant", "bee")
    np.testing.assert_array_equal(x, [pixels for pixels, _ in expected])
    assert y.tolist() == [label for _, label in expected]
    assert read_back("insects", tmp_path / "data", "test")[0].length == 6


def test_npz_of_vectors_and_targets(tmp_path):
    x = np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)
    np.savez(tmp_path / "v.npz", x_train=x, y_train=x[:, :1] * 2)
    import_dataset("npz", tmp_path / "v.npz", "vectors", tmp_path / "data")
    source, found, y = read_back("vectors", tmp_path / "data", "train")
    np.testing.assert_array_equal(found, x, strict=True)
    np.testing.assert_array_equal(y, x[:, :1] * 2, strict=True)
    assert source.schema.classes is None


def refused(kind, path, tmp_path, words, error=DataError):
    with pytest.raises(error, match=words) as caught:
        import_dataset(kind, path, "refused", tmp_path / "data")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_truncated_archive_leaves_nothing_behind(tmp_path, keep):
    archive = pack(tmp_path / "c.tar.gz", "cifar-10-batches-bin", cifar10_files()[0])
    content = archive.read_bytes()
    archive.write_bytes(content[: int(keep * len(content))])
    refused("cifar10", archive, tmp_path, "truncated or no archive")


def test_faulty_archives_leave_nothing_behind(tmp_path):
    files = cifar10_files()[0]
    cut = {**files, "data_batch_3.bin": files["data_batch_3.bin"][:-3073]}
    refused("cifar10", pack(tmp_path / "a.tar.gz", "c", cut), tmp_path, "one is truncated")
    cut = {**files, "test_batch.bin": files["test_batch.bin"][:-1]}
    refused("cifar10", pack(tmp_path / "b.tar.gz", "c", cut), tmp_path, "no multiple of 3073")
    cut = {name: content for name, content in files.items() if name != "data_batch_5.bin"}
    refused(
        "cifar10", pack(tmp_path / "c.tar.gz", "c", cut), tmp_path, r"expected the files data_batch_5\.bin"
    )
    cut = {**files, "batches.meta.txt": b"one two"}
    refused("cifar10", pack(tmp_path / "d.tar.gz", "c", cut), tmp_path, "2 class names")
    refused("cifar10", tmp_path / "none", tmp_path, "found nothing", MissingDataError)


def test_faulty_folders_leave_nothing_behind(tmp_path):
    folder = tmp_path / "images"
    (folder / "ant").mkdir(parents=True)
    refused("folder", folder, tmp_path, "is empty")
    Image.new("RGB", (4, 4)).save(folder / "ant" / "0.png")
    Image.new("RGB", (4, 5)).save(folder / "ant" / "1.png")
    refused("folder", folder, tmp_path, r"1\.png has 4×5 pixels, the first image 4×4")
    Image.effect_noise((64, 64), 90).save(folder / "ant" / "0.png")
    content = (folder / "ant" / "0.png").read_bytes()
    (folder / "ant" / "1.png").write_bytes(content[: len(content) // 2])
    refused("folder", folder, tmp_path, r"1\.png is no readable image")


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    from lamina.stream.archives import InMemory

    np.savez(tmp_path / "v.npz", x_train=np.ones((6, 4)), y_train=np.zeros(6, int))

    def fail(self, row):
        if row:
            raise DataError("row 1 cannot be read")
        return np.ones(4), 0

    monkeypatch.setattr(InMemory, "__call__", fail)
    refused("npz", tmp_path / "v.npz", tmp_path, "^row 1 cannot be read$")


def test_arguments(tmp_path):
    with pytest.raises(ConfigError, match="expected one of folder, npz, cifar10, cifar100"):
        import_dataset("zip", tmp_path, "a", tmp_path)
    with pytest.raises(ConfigError, match="small letters"):
        import_dataset("npz", tmp_path, "A-b", tmp_path)


def test_tfrecord_needs_tensorflow_and_says_so(tmp_path):
    folder = tmp_path / "old" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text('{"name": "old", "fileFormat": "tfrecord"}')
    with pytest.raises(ConfigError, match="prepared as tfrecord, which needs TensorFlow"):
        open_source(StreamConfig(source="tfds:old", folder=str(tmp_path)))
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        open_source(StreamConfig(source="tfds:old", folder=str(tmp_path)))


def test_shape_changes_are_marked(tmp_path):
    import tensorflow_datasets as tfds

    class Ragged(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self):
            features = {
                "x": tfds.features.Tensor(shape=(None,), dtype=np.float32),
                "y": tfds.features.Scalar(np.int64),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            return ((n, {"x": np.ones(4 - (n == 2), np.float32), "y": n}) for n in range(5))

    Ragged(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    config = StreamConfig(source="tfds:ragged", folder=str(tmp_path), shuffle=False, classes=4)
    with pytest.raises(ConfigError, match="name x by features"):
        open_source(config)
    from dataclasses import replace

    arrays = open_source(replace(config, features=("x",), target="y")).read(0, 5)
    assert arrays["problems"].tolist() == [0, 0, 3, 0, 2]
