"""How a run is watched while it lasts: its sinks, and what they show of it beside its rows."""

import sys
from contextlib import ExitStack
from pathlib import Path

from ..learners import Learner
from ..memory.store import Store
from ..monitoring import Facts, PrometheusExporter, PushGateway, Sink
from ..monitoring.inspect import disk_bytes


def open_sinks(
    resources: ExitStack, run_dir: Path, port: int | None, gateway: str | None
) -> tuple[PrometheusExporter | None, tuple[Sink, ...]]:
    """Opens what was asked for; `resources` closes it.

    Args:
      resources: closes the sinks.
      run_dir: the run's folder.
      port: serves Prometheus there (0: on a free one); None: not at all.
      gateway: URL of a Pushgateway to push to; None: to none.

    Returns:
      The exporter, if any, and all sinks.

    Raises:
      BusyError: the port is in use.
      ConfigError: no such port, or no URL.
    """
    exporter = None if port is None else PrometheusExporter(port)
    sinks: list[Sink] = []
    if exporter is not None:
        resources.callback(exporter.close)
        sinks.append(exporter)
    if gateway is not None:
        push = PushGateway(gateway, run_dir, warn=lambda line: print(line, file=sys.stderr))
        resources.callback(push.close)
        sinks.append(push)
    return exporter, tuple(sinks)


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
        return {name: disk_bytes(generation, name) for name in generation.tables}
