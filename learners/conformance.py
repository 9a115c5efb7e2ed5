"""Conformance: does this installation compute what an independent float64 implementation computed?

A reference file (`.npz`) holds a `config` (JSON) and arrays: a stream, what the network answered before each
step, and the memories after the last. Errors are relative to an array's largest magnitude.
"""

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from ..errors import DataError, MissingDataError
from ..memory.append import Occupancy
from ..memory.coefficients import Clock
from ..memory.database import empty_database, grow
from ..memory.kernels import RBF, Kernel, Linear, WeightedSoftmax
from ..memory.policy import MemoryConfig
from .conformance_dense import delta_pairs, mesa_pairs
from .initial import with_initial_entries
from .layers import GrowingLayer, GrowingSpec
from .learner import Learner
from .losses import Task
from .networks import ResidualGrowingNetwork
from .rules import GaugeRule, GrowingRule, KernelRule, WeightedSoftmaxRule
from .state import Batch, Memory, State
from .training import EntryTraining

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}  # relative to an array's largest magnitude

_FIRST_SLOTS = 10  # of a layer's first block: a batch of 4 straddles its end
_UNBOUNDED = MemoryConfig(initial_capacity=_FIRST_SLOTS)


@dataclass(frozen=True)
class Conformance:
    """The outcome for one file at one precision."""

    file: str
    kind: str
    precision: str  # "float32" or "float64"
    worst_array: str
    largest_error: float  # relative; NaN where the computed array is not finite

    @property
    def passed(self) -> bool:
        return self.largest_error <= TOLERANCES[self.precision]


def shipped_files() -> Iterator[Path]:
    """The reference files that come with the package."""
    with as_file(files(__package__) / "vectors") as folder:
        yield from sorted(folder.glob("*.npz"))


def check(path: Path, precision: str) -> Conformance:
    """Recomputes a reference file.

    Args:
      path: the file.
      precision: "float32" or "float64".

    Raises:
      MissingDataError: no such file.
      DataError: not a reference file, or of a kind this version does not know.
    """
    config, arrays = _load(path)
    kind = config.get("kind")
    if kind not in KINDS:
        raise DataError(f"{path}: expected a kind among {', '.join(KINDS)}; found {kind!r}")
    with jax.enable_x64(precision == "float64"):
        try:
            pairs = KINDS[kind](config, arrays)
        except KeyError as error:
            raise DataError(
                f"{path}: a reference file of kind {kind!r} needs {error}, which is missing"
            ) from None
        except (ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise DataError(
                f"{path}: expected config and arrays of kind {kind!r} that fit together: {reason}"
            ) from error
    errors = {name: _relative_error(*pair) for name, pair in pairs.items()}
    worst = max(errors, key=lambda name: np.inf if np.isnan(errors[name]) else errors[name])
    return Conformance(path.name, kind, precision, worst, errors[worst])


def _load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {name.removesuffix(".npy"): _read_array(archive, name) for name in archive.namelist()}
        config = json.loads(str(arrays.pop("config")))
    except FileNotFoundError:
        raise MissingDataError(f"{path}: expected a reference file (.npz); there is none") from None
    except KeyError as error:
        raise DataError(f"{path}: expected a reference file with a `config`; found none") from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"{path}: expected a reference file (.npz with a JSON config): {error}") from error
    if not isinstance(config, dict):
        raise DataError(f"{path}: expected a config that is a JSON object; found {config!r:.60}")
    return config, arrays


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return array


Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # name -> (expected, computed)


def _coefficients(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Pairs:
    pairs = {}
    for momentum, decay, *expected in arrays["table"]:
        clock = Clock.start()
        for _ in expected:
            clock = clock.advance(momentum=momentum, decay=decay)
        pairs[f"momentum {momentum} decay {decay}"] = np.array(expected), clock.coefficients
    return pairs


def _growing(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Pairs:
    learner = _learner(config)
    state, passed = _passed(learner, arrays)
    pairs = {
        "outputs": (arrays["outputs"], passed["outputs"]),
        "losses": (arrays["losses"], passed["losses"]),
        "query_output": (arrays["query_output"], learner.predict(state, arrays["query"])),
    }
    for number, memory in enumerate(state.memories.values()):
        columns = ["keys", "values", "created"] + (["weights"] if memory.database.weighted else [])
        pairs |= _memory_pairs(f"layer{number}", memory, arrays, columns)
        pairs |= _coefficient_pairs(f"layer{number}", memory, arrays)
    return pairs


def _hybrid(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Pairs:
    """Algorithm 4: novelty and a cap decide what is appended, Adam trains what is there."""
    adam = optax.adam(config["adam_lr"])
    learner = _learner(
        {**config, "kind": "softmax", "momentum": 0.0, "decay": 0.0},
        memory=MemoryConfig(
            initial_capacity=_FIRST_SLOTS,
            capacity=config["capacity"],
            admission="novelty",
            novelty_threshold=config["tau"],
        ),
        training=EntryTraining(adam, adam, adam),
    )
    state, passed = _passed(learner, arrays)
    pairs = {
        "outputs": (arrays["outputs"], passed["outputs"]),
        "sizes": (arrays["sizes"], passed["sizes"]),
        "query_output": (arrays["query_output"], learner.predict(state, arrays["query"])),
    }
    for number, memory in enumerate(state.memories.values()):
        pairs |= _memory_pairs(f"layer{number}", memory, arrays, ["keys", "values", "weights"])
    return pairs


def _passed(learner: Learner, arrays: dict[str, np.ndarray]) -> tuple[State, dict[str, np.ndarray]]:
    """The state after the stream, and by step what was predicted, its losses, and the entries after it."""
    state, batch = _initial_state(learner, arrays), arrays["x"].shape[1]
    outputs, losses, sizes = [], [], []
    for step, (x, y) in enumerate(zip(arrays["x"], arrays["y"], strict=True)):
        state, result = learner.update(state, Batch(x, y, np.arange(step * batch, (step + 1) * batch)))
        outputs.append(np.asarray(result.outputs))
        losses.append(np.asarray(result.losses))
        sizes.append([int(memory.database.entries) for memory in state.memories.values()])
    return state, {"outputs": np.stack(outputs), "losses": np.stack(losses), "sizes": np.stack(sizes)}


def _memory_pairs(prefix: str, memory: Memory, arrays: dict[str, np.ndarray], columns: list[str]) -> Pairs:
    live = memory.database.column("created") >= 0
    return {
        f"{prefix}_{column}": (arrays[f"{prefix}_{column}"], memory.database.column(column)[live])
        for column in columns
    }


def _coefficient_pairs(prefix: str, memory: Memory, arrays: dict[str, np.ndarray]) -> Pairs:
    created = memory.database.column("created")
    created = created[created >= 0]
    coefficients = np.ones(len(created))
    if memory.clocks is not None:
        clock = memory.clocks.values
        coefficients = np.append(clock.initial, clock.coefficients)[created]
    return {f"{prefix}_coefficient": (arrays[f"{prefix}_coefficient"], coefficients)}


def _learner(
    config: dict[str, Any],
    memory: MemoryConfig = _UNBOUNDED,
    training: EntryTraining | None = None,
) -> Learner:
    kernel, rule = _kernel_and_rule(config)
    spec = GrowingSpec(
        key_features=config["d"],
        value_features=config["d"],
        kernel=kernel,
        rule=rule,
        memory=memory,
        initial="unit",
        initial_entries=0,
        momentum=config["momentum"],
        decay=config["decay"],
        training=training,
    )
    blocks = [GrowingLayer(f"block{number}", spec) for number in range(config["blocks"])]
    readout = GrowingLayer("readout", replace(spec, value_features=config["outputs"]))
    task = Task(config["outputs"], classification=config["loss"] == "ce")
    return Learner(ResidualGrowingNetwork(blocks, readout), task)


def _kernel_and_rule(config: dict[str, Any]) -> tuple[Kernel, GrowingRule]:
    kernels: dict[str, Callable[[], tuple[Kernel, GrowingRule]]] = {
        "linear": lambda: (Linear(), KernelRule(config["eta"])),
        "rbf": lambda: (RBF(config["temperature"]), KernelRule(config["eta"])),
        "softmax": lambda: (
            WeightedSoftmax(config["temperature"]),
            WeightedSoftmaxRule(value_rate=config["beta"], weight_rate=config["eta"]),
        ),
        "gauge": lambda: (
            WeightedSoftmax(config["temperature"]),
            GaugeRule(config["beta"], config["eta"], config["alpha"]),
        ),
    }
    return kernels[config["kind"]]()


def _initial_state(learner: Learner, arrays: dict[str, np.ndarray]) -> State:
    state = learner.init(jax.random.key(0))
    memories = {}
    for number, (name, memory) in enumerate(state.memories.items()):
        if f"layer{number}_init_keys" in arrays:
            columns = [arrays[f"layer{number}_init_{c}"] for c in ("keys", "values", "weights")]
            memory = _with_initial(memory, learner.layers[name].spec, columns)
        # Grown at once: entries then come to lie in two blocks, and the step is compiled only once.
        database, training = grow(memory.database), learner.layers[name].spec.training
        states = None if training is None else training.start(database)
        memories[name] = replace(memory, database=database, training=states)
    return replace(state, memories=memories)


def _with_initial(memory: Memory, spec: GrowingSpec, columns: list[np.ndarray]) -> Memory:
    keys, values, weights = (jax.numpy.asarray(c, jax.numpy.result_type(float)) for c in columns)
    empty = empty_database(len(keys), spec.key_features, spec.value_features, weighted=True, dtype=keys.dtype)
    database = with_initial_entries(empty, keys, values, weights)
    return replace(memory, database=database, occupancy=Occupancy.of(database, holes=False))


def _relative_error(expected: np.ndarray, computed: np.ndarray) -> float:
    if expected.shape != computed.shape:
        return float("inf")
    if expected.size == 0:
        return 0.0
    scale = float(np.max(np.abs(expected))) or 1.0
    return float(np.max(np.abs(expected - np.asarray(computed, np.float64)))) / scale


KINDS: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Pairs]] = {
    "linear": _growing,
    "rbf": _growing,
    "softmax": _growing,
    "gauge": _growing,
    "hybrid_softmax": _hybrid,
    "coefficient": _coefficients,
    "mesa": mesa_pairs,
    "delta": delta_pairs,
}
