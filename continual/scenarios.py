"""Scenarios: well-known sequences of phases, written out from a few options."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as config

from ..stream.randomness import generator
from .phase_config import ReplayConfig

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

SCENARIOS: dict[str, str] = {
    "split_classes": "a few classes at a time, in class_order",
    "permuted": "the stream as it is, then its pixels in other orders, one fixed order a phase",
    "rotated": "the stream as it is, then turned by further degrees every phase",
}


@config(frozen=True, config=_STRICT, kw_only=True)
class _Scenario:
    """What scenarios share."""

    # Replay in all phases but the first.
    replay: ReplayConfig | None = None


@config(frozen=True, config=_STRICT, kw_only=True)
class SplitClasses(_Scenario):
    """Class-incremental learning: a phase streams the next few classes; there are outputs for all of them."""

    kind: Literal["split_classes"]
    # The labels in the order in which they come.
    class_order: Annotated[tuple[int, ...], Field(min_length=1)]
    # Classes in a phase; the last one takes what is left.
    classes_per_phase: Annotated[int, Field(gt=0)] = 2
    # Draw the order of the labels above from the run's seed.
    shuffle: bool = False


@config(frozen=True, config=_STRICT, kw_only=True)
class Permuted(_Scenario):
    """Domain-incremental learning: the same labels, another fixed order of x's values every phase."""

    kind: Literal["permuted"]
    phases: Annotated[int, Field(gt=0)] = 5


@config(frozen=True, config=_STRICT, kw_only=True)
class Rotated(_Scenario):
    """Domain-incremental learning: the same labels, images turned further every phase."""

    kind: Literal["rotated"]
    phases: Annotated[int, Field(gt=0)] = 5
    # From one phase to the next.
    degrees: float = 30.0


ScenarioConfig = Annotated[SplitClasses | Permuted | Rotated, Field(discriminator="kind")]
_SCENARIO: TypeAdapter[SplitClasses | Permuted | Rotated] = TypeAdapter(ScenarioConfig)


def scenario_phases(values: Any, seed: int) -> dict[str, dict[str, Any]]:
    """The phases that a scenario's options describe.

    Args:
      values: the options, unchecked.
      seed: the run's seed.

    Returns:
      Phase name → what differs from the run's own stream.

    Raises:
      pydantic.ValidationError: a wrong option.

    >>> phases = scenario_phases({"kind": "split_classes", "class_order": [3, 1, 2]}, 0)
    >>> {name: phase["stream"]["only_classes"] for name, phase in phases.items()}
    {'classes-3-1': [3, 1], 'classes-2': [2]}
    """
    scenario = _SCENARIO.validate_python(values)
    streams = dict(_streams(scenario, seed))
    replay = {} if scenario.replay is None else {"replay": values["replay"]}
    return {
        name: {"stream": stream, **(replay if number else {})}
        for number, (name, stream) in enumerate(streams.items())
    }


def _streams(scenario: SplitClasses | Permuted | Rotated, seed: int) -> list[tuple[str, dict[str, Any]]]:
    match scenario:
        case SplitClasses():
            order = list(scenario.class_order)
            if scenario.shuffle:
                places = generator(seed, "class order").permutation(len(order))
                order = [order[place] for place in places]
            size = scenario.classes_per_phase
            parts = [order[start : start + size] for start in range(0, len(order), size)]
            return [(f"classes-{'-'.join(map(str, part))}", {"only_classes": part}) for part in parts]
        case Permuted():
            orders = [None, *range(1, scenario.phases)]
            return [("plain" if order is None else f"order-{order}", {"permute": order}) for order in orders]
        case Rotated():
            turns = [number * scenario.degrees for number in range(scenario.phases)]
            return [(f"turned-{turn:g}", {"rotate": turn}) for turn in turns]
