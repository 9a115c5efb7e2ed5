"""Numbers as people read them, and tables of them in plain text."""

from collections.abc import Sequence


def size_text(count: float | None) -> str:
    """Returns bytes as people read them, in powers of 1024.

    Example:
      >>> size_text(512), size_text(1536), size_text(5_000_000), size_text(None)
      ('512 B', '1.5 KiB', '4.8 MiB', '–')
    """
    if count is None:
        return "–"
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def count_text(count: int | None) -> str:
    """Returns a count with separators, or a dash for one that is not known."""
    return "–" if count is None else f"{count:,}"


def ratio_text(ratio: float | None) -> str:
    """Returns an accuracy with four digits, or a dash for one that is not known."""
    return "–" if ratio is None else f"{ratio:.4f}"


def edge_texts(edges: Sequence[float]) -> list[str]:
    """Returns a histogram's edges with just enough digits to tell neighbours apart.

    Example:
      >>> edge_texts([0, 1500, 3000]), edge_texts([0.00021, 0.5]), edge_texts([7.99981, 7.9999, 8])
      (['0', '1,500', '3,000'], ['0.00021', '0.5'], ['7.9998', '7.9999', '8'])
    """
    if all(float(edge).is_integer() for edge in edges):
        return [f"{edge:,.0f}" for edge in edges]
    for digits in range(3, 17):
        texts = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(texts)) == len(texts):
            break
    return texts


def duration(seconds: float) -> str:
    """Returns a duration as people read it.

    Example:
      >>> duration(7), duration(75), duration(3 * 3600 + 240)
      ('7 s', '1 min 15 s', '3 h 04 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([f"{row[0]:<{widths[0]}}", *numbers]).rstrip())
    return lines
