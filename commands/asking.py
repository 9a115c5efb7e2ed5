"""Commands that ask what a run knows, and one that takes it away."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .programs import keep_programs

if TYPE_CHECKING:
    from ..continual.explaining import Explanation


def explain(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.explaining import explain_example

    found = explain_example(
        Path(options.run_dir),
        split=options.split,
        index=options.index,
        layer=options.layer,
        count=options.count,
        phase=options.phase,
        token=options.token,
    )
    if options.picture:
        from ..monitoring.pictures import draw_examples

        draw_examples(found.pictures(f"{options.split} {options.index}"), Path(options.picture))
    print(json.dumps(found.values()) if options.json else _explanation_text(found))
    return 0


def _explanation_text(found: "Explanation") -> str:
    lines = [
        f"label {found.name(found.label)}, predicted {found.name(found.predicted)}; from {found.layer}:",
        f"{'share':>8}  {'amount':>9}  {'similarity':>10}  {'step':>7}  {'phase, offset':>16}  label",
    ]
    for each, near in zip(found.contributions, found.neighbours, strict=True):
        place, label = ("", "(initial function)") if near is None else (near.place, found.behind(near))
        lines.append(
            f"{each.share:>+8.2%}  {each.amount:>+9.4f}  {each.similarity:>10.4g}  {each.created:>7,}  "
            f"{place:>16}  {label}"
        )
    return "\n".join(lines)


def generate(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.texts import go_on

    if not options.temperature >= 0:
        raise ConfigError(f"--temperature: expected a number of at least 0; found {options.temperature}")
    found = go_on(
        Path(options.run_dir),
        options.prompt,
        words=options.words,
        temperature=options.temperature,
        seed=options.seed,
    )
    print(json.dumps(found.values()) if options.json else f"{found.prompt} {found.text}")
    return 0


def forget(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.forgetting import forget_examples

    found = forget_examples(Path(options.run_dir), options.offsets, examples=options.examples)
    if options.json:
        print(json.dumps(found.values()))
        return 0
    removed = ", ".join(f"{count} of {layer}" for layer, count in found.entries.items())
    print(f"{sum(found.entries.values())} entries are gone: {removed}")
    if found.largest_change is not None:
        print(
            f"on {found.examples:,} held-out examples outputs changed by {found.mean_change:.3g} on average, "
            f"at most by {found.largest_change:.3g}"
        )
    if found.predictions_changed is not None:
        print(f"{found.predictions_changed:,} predictions changed")
    return 0


def ablate(options: argparse.Namespace) -> int:
    keep_programs()
    from ..continual.ablating import ablate

    found = ablate(Path(options.run_dir), examples=options.examples)
    if options.json:
        print(json.dumps({name: scores.values() for name, scores in found.items()}))
        return 0
    width = max([8, *map(len, found)])
    print(f"{'examples':<{width}}  {'number':>7}  accuracy    loss    with 1 + x for exp(x): accuracy, loss")
    for name, scores in found.items():
        numbers = [_share(scores.accuracy), _number(scores.loss)]
        numbers += [_share(scores.linear_accuracy), _number(scores.linear_loss)]
        print(
            f"{name:<{width}}  {scores.examples:>7,}  "
            + "".join(f"{number:<10}" for number in numbers).rstrip()
        )
    return 0


def _share(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.4f}"


def _number(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4g}"


def weights(options: argparse.Namespace) -> int:
    from ..continual.entry_weights import compare

    found = compare(
        options.steps,
        options.learning_rate,
        options.schedule,
        options.momentum,
        options.decay,
        coupled=options.coupled,
    )
    if options.picture:
        from ..monitoring.weight_chart import draw_weights

        draw_weights(found.relative, Path(options.picture))
    print(json.dumps(found.values()) if options.json else found.text())
    return 0
