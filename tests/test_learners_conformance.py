"""The reference vectors that come with the package, and files that are none."""

import json
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from lamina.errors import DataError, LaminaError, MissingDataError
from lamina.learners.conformance import KINDS, TOLERANCES, check, shipped_files

FILES = {path.stem: path for path in shipped_files()}
READOUT, COEFFICIENTS = FILES["rbf_readout"], FILES["coefficients"]


@pytest.fixture(scope="module", autouse=True)
def compiled_as_for_users() -> Iterator[None]:
    """With the optimisations that other tests do without."""
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


def tampered(tmp_path: Path, source: Path = READOUT, **changes: object) -> Path:
    """A copy of a reference file with changed arrays (None: left out) or a changed config."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        elif name == "config":
            arrays["config"] = np.array(change if isinstance(change, str) else json.dumps(change))
        else:
            arrays[name] = np.asarray(change)
    np.savez(tmp_path / "tampered.npz", **arrays)
    return tmp_path / "tampered.npz"


def config_of(path: Path) -> dict[str, object]:
    with np.load(path) as file:
        return json.loads(str(file["config"]))


def array_of(name: str, path: Path = READOUT) -> np.ndarray:
    with np.load(path) as file:
        return file[name].copy()


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("path", FILES.values(), ids=FILES.keys())
def test_a_shipped_vector_is_reproduced(path: Path, precision: str) -> None:
    outcome = check(path, precision)
    assert outcome.passed, outcome
    assert outcome.largest_error <= TOLERANCES[precision]
    assert (outcome.file, outcome.precision) == (path.name, precision)


def test_every_kind_comes_with_a_vector() -> None:
    assert {config_of(path)["kind"] for path in FILES.values()} == set(KINDS)


@pytest.mark.parametrize("name", ["outputs", "layer0_values"])
def test_a_number_changed_slightly_fails_in_its_array(tmp_path: Path, name: str) -> None:
    array = array_of(name)
    array.flat[array.size // 2] += 1e-8 * np.abs(array).max()
    outcome = check(tampered(tmp_path, **{name: array}), "float64")
    assert not outcome.passed
    assert outcome.worst_array == name
    assert outcome.largest_error == pytest.approx(1e-8, rel=1e-3)


def test_another_rate_fails(tmp_path: Path) -> None:
    changed = config_of(READOUT) | {"eta": 0.31}
    assert not check(tampered(tmp_path, config=changed), "float32").passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_fails(tmp_path: Path, value: float) -> None:
    table = array_of("table", COEFFICIENTS)
    table[2, 5] = value
    outcome = check(tampered(tmp_path, COEFFICIENTS, table=table), "float32")
    assert not outcome.passed
    assert outcome.worst_array == f"momentum {table[2, 0]} decay {table[2, 1]}"


def test_an_array_of_another_shape_fails(tmp_path: Path) -> None:
    outcome = check(tampered(tmp_path, query_output=array_of("query_output")[:-1]), "float32")
    assert (outcome.passed, outcome.worst_array, outcome.largest_error) == (False, "query_output", np.inf)


def test_a_changed_coefficient_fails(tmp_path: Path) -> None:
    table = array_of("table", COEFFICIENTS)
    table[3, 10] *= 1 + 1e-8
    outcome = check(tampered(tmp_path, COEFFICIENTS, table=table), "float64")
    assert not outcome.passed
    assert outcome.worst_array == f"momentum {table[3, 0]} decay {table[3, 1]}"


def foreign(tmp_path: Path) -> dict[str, Path]:
    """Files that are no reference files, by what is wrong with them."""
    whole = READOUT.read_bytes()
    contents = {
        "empty": b"",
        "text": b"kind,rbf\n",
        "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07malware\x94.",
        "truncated": whole[: len(whole) // 2],
        "flipped": whole[:400] + bytes([whole[400] ^ 255]) + whole[401:],
    }
    paths = {name: tmp_path / f"{name}.npz" for name in contents}
    for name, path in paths.items():
        path.write_bytes(contents[name])
    np.save(tmp_path / "single.npy", np.ones(3))
    (tmp_path / "folder.npz").mkdir()
    objects = tmp_path / "objects.npz"
    np.savez(objects, config=np.array({"kind": "rbf"}, dtype=object))
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, x=np.ones(3))
    return paths | {
        "a single array": tmp_path / "single.npy",
        "a folder": tmp_path / "folder.npz",
        "objects": objects,
        "without config": foreign,
    }


def test_foreign_files_are_one_line_errors(tmp_path: Path) -> None:
    for name, path in foreign(tmp_path).items():
        with pytest.raises(DataError, match="reference file") as caught:
            check(path, "float32")
        assert "\n" not in str(caught.value), name
        assert str(path) in str(caught.value), name


def test_a_missing_file_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"none\.npz: expected a reference file .* there is none"):
        check(tmp_path / "none.npz", "float64")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"config": {"kind": "fourier"}},
            "linear, rbf, softmax, gauge, hybrid_softmax, coefficient, mesa, delta; found 'fourier'",
        ),
        ({"config": {}}, "found None"),
        ({"config": "{not json"}, "JSON config"),
        ({"config": [1, 2]}, "expected a config that is a JSON object"),
        ({"config": {"kind": "rbf"}}, "which is missing"),
        ({"outputs": None}, "'outputs', which is missing"),
        ({"layer0_keys": None}, "'layer0_keys', which is missing"),
        ({"x": np.zeros((2, 4, 8))}, "fit together"),
        ({"y": np.full((6, 4), "a")}, "fit together"),
    ],
)
def test_a_file_that_does_not_fit_together_says_why(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(LaminaError, match=complaint) as caught:
        check(tampered(tmp_path, **changes), "float32")
    assert "\n" not in str(caught.value)
