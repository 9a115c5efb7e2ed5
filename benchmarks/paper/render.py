"""Pages of results, written from the files alone: one per experiment, and a summary of all."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from lamina.durable import write_durably

from .experiment import Cell, Column, Experiment, Mean, Measured
from .figure import draw
from .results import Place, Result, Task, finished, places, tries

_METRIC = {"accuracy": "test accuracy, %", "loss": "test loss"}
_NOT_RUN = "not run"
_FEW = 3  # cells without a published number that the summary names one by one


def render(experiments: Mapping[str, Experiment], results: Path, pages: Path) -> list[Path]:
    """Writes all pages and figures.

    Args:
      experiments: by name.
      results: the folder of the files of results.
      pages: the folder of the pages.

    Returns:
      What was written; figures that are no longer drawn are deleted.
    """
    written: dict[Path, bytes] = {}
    summary = _summary_head()
    for experiment in experiments.values():
        found = [place for place in places(experiment, results) if place.size != "smoke"]
        text = _page(experiment, found, written, pages)
        written[pages / f"{experiment.name}.md"] = text.encode()
        summary += _summary_lines(experiment, found)
    written[pages / "README.md"] = (summary + _summary_tail()).encode()
    pages.joinpath("figures").mkdir(parents=True, exist_ok=True)
    for old in pages.joinpath("figures").glob("*.svg"):
        if old not in written:
            old.unlink()
    for path, content in written.items():
        write_durably(path, content)
    return list(written)


def means_of(place: Place, cells: Sequence[Cell]) -> dict[str, Mean]:
    """The numbers of the cells that have any, over the seeds that are there."""
    means = {}
    for cell in cells:
        results = [r for r in _results(place, cell) if "failed" not in r.figures]
        if results:
            metric = place.experiment.metric
            values = tuple(float(r.figures[metric]) for r in results)
            means[cell.name] = Mean(values, tuple(r.figures for r in results), tuple(r.seed for r in results))
    return means


def _results(place: Place, cell: Cell) -> list[Result]:
    count = cell.seeds or place.experiment.size(place.size).seeds
    found = [finished(place, Task(cell, seed)) for seed in range(count)]
    return [result for result in found if result is not None]


def _page(experiment: Experiment, found: Sequence[Place], written: dict[Path, bytes], pages: Path) -> str:
    lines = [
        f"# {experiment.title}",
        "",
        f"*{experiment.paper}.* {experiment.about}",
        "",
        f"**Where it differs.** {experiment.differs}",
        "",
        f"Run what is missing with `python -m benchmarks.paper run {experiment.name} --size small` (or "
        f"`--size full`), and draw this page again with `python -m benchmarks.paper render`.",
        "",
    ]
    for place in found:
        lines += _section(place, written, pages)
    return "\n".join(lines)


def _section(place: Place, written: dict[Path, bytes], pages: Path) -> list[str]:
    experiment, size = place.experiment, place.experiment.size(place.size)
    cells = place.cells
    means = means_of(place, cells)
    results = [result for cell in cells for result in _results(place, cell)]
    data = results[0].data if results and experiment.images else ""
    title = f"## {place.size.capitalize()} size" + (f", {data}" if data else "")
    lines = [title, ""]
    if size.words:
        lines += [f"{size.words[0].upper()}{size.words[1:]}.", ""]
    if not results and not any(cell.paper for cell in cells):
        return [*lines, f"Not run yet: {len(cells)} cells, {size.seeds} seeds each.", ""]
    lines += _table(place, cells, means)
    if experiment.remarks is not None and (sentences := experiment.remarks(means)):
        lines += [*(f"- {sentence}" for sentence in sentences), ""]
    for number, figure in enumerate(experiment.figures, start=1):
        picture = draw(figure, cells, means)
        if picture is not None:
            name = f"figures/{experiment.name}-{place.name}-{number}.svg"
            written[pages / name] = picture
            lines += [f"![{figure.title}]({name})", ""]
    lines += _choices(place, cells)
    return lines + _provenance(place, results)


def _table(place: Place, cells: Sequence[Cell], means: Mapping[str, Mean]) -> list[str]:
    metric = place.experiment.metric
    paper = any(cell.paper for cell in cells)
    more = place.experiment.columns
    head = ["cell", "", _METRIC[metric], *(column.head for column in more), *(["paper"] if paper else [])]
    head += ["seeds", "entries", "seconds a run"]
    lines = [_row(head), _row(["---"] * len(head))]
    for cell in cells:
        mean = means.get(cell.name)
        figures = [] if mean is None else mean.figures
        published = [f"{cell.paper} ({cell.paper.where})" if cell.paper else ""] if paper else []
        counts = [f["entries"] for f in figures if f.get("entries")]
        seconds = [f["seconds"] for f in figures if "seconds" in f]
        lines.append(
            _row(
                [
                    f"`{cell.name}`",
                    cell.label,
                    _number(place, cell, mean),
                    *(_further(column, figures) for column in more),
                    *published,
                    str(len(figures)) if figures else "",
                    f"{statistics.mean(counts):,.0f}" if counts else "",
                    f"{statistics.mean(seconds):,.0f}" if seconds else "",
                ]
            )
        )
    return [*lines, ""]


def _further(column: Column, figures: Sequence[Measured]) -> str:
    """The mean over the seeds that have it, and how many have not; empty for a cell that was not run."""
    name = column.figure or column.head
    known = [found[name] for found in figures if found.get(name) is not None]
    if not known:
        return "–" if figures else ""
    missing = len(figures) - len(known)
    return format(statistics.mean(known), column.style) + (f" ({missing} without)" if missing else "")


def _number(place: Place, cell: Cell, mean: Mean | None) -> str:
    """Mean ± standard deviation over seeds, or why there is none."""
    if mean is None:
        failed = [r.figures["failed"] for r in _results(place, cell) if "failed" in r.figures]
        return "diverged" if failed else _NOT_RUN
    digits = ".1f" if place.experiment.metric == "accuracy" else ".3g"
    text = format(mean.mean, digits)
    return text if mean.deviation is None else f"{text} ± {format(mean.deviation, digits)}"


def _choices(place: Place, cells: Sequence[Cell]) -> list[str]:
    """What validation chose, and from which numbers."""
    metric = place.experiment.metric
    digits = ".1f" if metric == "accuracy" else ".3g"
    lines = []
    for cell in cells:
        found = {name: result for name, result in tries(place, cell).items() if result is not None}
        if not found:
            continue
        numbers = {
            name: format(r.figures[metric], digits) if metric in r.figures else "diverged"
            for name, r in found.items()
        }
        chosen = next((r.chosen["candidate"] for r in _results(place, cell) if r.chosen), None)
        tried = ", ".join(
            f"**{name} {number}**" if name == chosen else f"{name} {number}"
            for name, number in numbers.items()
        )
        lines.append(f"- `{cell.name}`: {tried}")
    if not lines:
        return []
    tried_on = place.experiment.size(place.size).tried_on
    seen = f", after the first {tried_on:,} training images" if tried_on else ""
    return [
        f"Chosen on validation (a tenth of the training data, one seed{seen}; bold is in force):",
        "",
        *lines,
        "",
    ]


def _provenance(place: Place, results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    machines = sorted({result.machine for result in results})
    names = sorted(
        {f"{n} {v}" for r in results for n, v in r.versions.items() if n in ("python", "jax", "lamina")}
    )
    wall = sum(result.wall_seconds for result in results)
    folder = f"data/{place.experiment.name}/{place.name}"
    return [
        f"Files: [{folder}]({folder}), one per cell and seed, with settings, curves and versions. Machine: "
        f"{', '.join(machines)}; {', '.join(names)}; {wall / 60:,.0f} minutes for the numbers on test.",
        "",
    ]


def _summary_head() -> str:
    return (
        "# The paper's experiments\n\n"
        "Every number below was measured by `python -m benchmarks.paper run EXPERIMENT` and lies in "
        "a file under "
        "[data](data), one per cell and seed; pages are drawn from these files alone. Numbers are means over "
        "seeds ± their standard deviation. Hyper-parameters that are not the paper's own were chosen on a "
        "validation split of the training data; the paper chose them on test. *Small* keeps an experiment's "
        "mechanism within what two cores can do, so its numbers stand beside the paper's for their "
        "order, not "
        "their height; *full* is the paper's setting.\n\n"
        "| experiment | cell | size | ours | paper |\n|---|---|---|---|---|\n"
    )


def _summary_lines(experiment: Experiment, found: Sequence[Place]) -> str:
    lines = []
    for place in found:
        cells = place.cells
        means = means_of(place, cells)
        link = f"[{experiment.name}]({experiment.name}.md)"
        for cell in cells:
            if cell.paper:
                ours = _with_seeds(place, cell, means.get(cell.name))
                lines.append(_row([link, cell.label, place.name, ours, f"{cell.paper} ({cell.paper.where})"]))
        others = sorted(
            (cell for cell in cells if not cell.paper and cell.name in means),
            key=lambda c: means[c.name].mean,
        )
        if len(others) > _FEW:
            ends = " … ".join(_number(place, cell, means[cell.name]) for cell in (others[0], others[-1]))
            labels = f"{len(others)} cells, from *{others[0].label}* to *{others[-1].label}*"
            lines.append(_row([link, labels, place.name, ends, ""]))
        else:
            lines += [
                _row([link, cell.label, place.name, _with_seeds(place, cell, means[cell.name]), ""])
                for cell in others
            ]
    if not lines:
        lines.append(_row([f"[{experiment.name}]({experiment.name}.md)", experiment.title, "", _NOT_RUN, ""]))
    return "\n".join(lines) + "\n"


def _with_seeds(place: Place, cell: Cell, mean: Mean | None) -> str:
    if mean is None:
        return _number(place, cell, mean)
    seeds = len(mean.values)
    return f"{_number(place, cell, mean)} ({seeds} seed{'s' if seeds > 1 else ''})"


def _summary_tail() -> str:
    return (
        "\n## Run more\n\n"
        "`python -m benchmarks.paper list --cells` names all cells. `python -m benchmarks.paper run all "
        "--size small` runs what is missing, one cell at a time, and can be stopped and started again at any "
        "moment: finished cells are passed over, and an interrupted one goes on from its last "
        "commit. `--cells`, "
        "`--seeds` and `--minutes` narrow it down, `--size full` is the paper's setting, for an "
        "accelerator or "
        "for patience (a growing pass at full size takes about a quarter of an hour on two cores). "
        "`--data` names "
        "CIFAR-10 where it is not prepared (see [your own data](../data.md)), as `--data "
        "npz:cifar.npz`; without "
        "it Fashion-MNIST is taken.\n\n"
        "`python -m benchmarks.paper recompute one_pass/rbf-t10` measures one cell again and prints "
        "both numbers; "
        "`python -m benchmarks.paper render` draws all pages again.\n"
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
