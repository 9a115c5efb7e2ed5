"""How a run is watched while it lasts: its sinks, and what they show of it beside its rows."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..learners import Learner
from ..memory.store import Store
from ..monitoring import Facts, PrometheusExporter, PushGateway, Sink, TargetFile
from ..monitoring.inspect import disk_bytes, layer_names


@dataclass(frozen=True)
class Watching:
    """Where a run's metrics go beside its folder."""

    port: int | None = None  # serves Prometheus there (0: on a free port); None: not at all
    targets: Path | None = None  # a folder of Prometheus's file discovery, to be found by
    gateway: str | None = None  # URL of a Pushgateway


@dataclass(frozen=True)
class Sinks:
    """The sinks of a run."""

    exporter: PrometheusExporter | None
    all: tuple[Sink, ...]


def open_sinks(watching: Watching, resources: ExitStack, run_dir: Path) -> Sinks:
    """Opens what was asked for.

    Args:
      watching: what was asked for.
      resources: closes the sinks.
      run_dir: the run's folder.

    Raises:
      BusyError: the port is in use.
      ConfigError: no such port or folder, no URL, or a folder of targets without a port.
      StorageError: the file system refused.
    """
    if watching.targets is not None and watching.port is None:
        raise ConfigError("metrics targets name the metrics port: set --metrics-port too (0: a free one)")
    exporter, sinks = None, list[Sink]()
    if watching.port is not None:
        exporter = PrometheusExporter(watching.port)
        resources.callback(exporter.close)
        sinks.append(exporter)
        if watching.targets is not None:
            resources.callback(TargetFile(watching.targets, exporter.port).close)
    if watching.gateway is not None:
        push = PushGateway(watching.gateway, run_dir, warn=lambda line: print(line, file=sys.stderr))
        resources.callback(push.close)
        sinks.append(push)
    return Sinks(exporter, tuple(sinks))


def facts(learner: Learner, stream_examples: int | None) -> Facts:
    """What does not change while a run is open."""
    memories = {name: layer.spec.memory for name, layer in learner.layers.items()}
    return Facts(
        stream_examples=stream_examples,
        limits={name: m.capacity for name, m in memories.items() if m.capacity is not None},
        policies={name: (m.admission, m.eviction) for name, m in memories.items()},
        devices=tuple(str(device) for device in range(learner.shards.count)),
    )


def layer_disk_bytes(store: Store) -> dict[str, int]:
    """By layer, the bytes of its files in the last commit."""
    with store.generation() as generation:
        return {name: disk_bytes(generation, name) for name in layer_names(generation)}
