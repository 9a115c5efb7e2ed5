"""`lamina report`: the dashboard's page about one run or several, whole in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..durable import write_durably
from .assets import self_contained
from .documents import Document, run_document
from .history import History
from .inspect import inspect_with, read_memory
from .run_view import RunView
from .table import TABLE_NAME

REPORT_NAME = "report.html"


def write_report(run_dir: Path, output: Path | None = None, what_if: dict[str, Any] | None = None) -> Path:
    """Writes the report of a run, running, interrupted or finished.

    Args:
      run_dir: the run's folder.
      output: the page to write; None: `report.html` in the run's folder.
      what_if: what thresholds would cost in its memory; None: the page says nothing of it.

    Returns:
      The page's path.

    Raises:
      MissingDataError: the folder is not a run.
      FormatError: its configuration is damaged.
      StorageError: the file system refused.
    """
    path = output if output is not None else run_dir / REPORT_NAME
    write_durably(path, _page([_document(run_dir)], what_if).encode())
    return path


def write_comparison(run_dirs: Sequence[Path], output: Path, table: dict[str, Any] | None = None) -> Path:
    """Writes a page that compares runs: figures, curves, accuracy matrices, and the settings that differ.

    Args:
      run_dirs: the runs' folders, at least two.
      output: the page to write.
      table: a table to begin with: `head`, and `rows` of as many cells; None: there is none.

    Returns:
      The page's path.

    Raises:
      MissingDataError, FormatError, StorageError: as `write_report`.
    """
    page = _page([_document(run_dir) for run_dir in run_dirs], table=table)
    write_durably(output, page.encode())
    return output


def _document(run_dir: Path) -> Document:
    view, history = RunView(run_dir), History(run_dir / TABLE_NAME)
    history.update()
    return run_document(inspect_with(view, history, read_memory(run_dir)), history)


def _page(
    runs: Sequence[Document],
    what_if: dict[str, Any] | None = None,
    table: dict[str, Any] | None = None,
) -> str:
    title = ", ".join(run["run"] for run in runs)
    mark = f"Lamina {'run' if len(runs) == 1 else 'runs'} · report of {runs[0]['written']}"
    drawn = any(run["charts"] for run in runs)
    documents = {"runs": runs, "what_if": what_if, "table": table}
    return self_contained(documents, f"{title} · Lamina", mark, drawn=drawn)
