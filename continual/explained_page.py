"""An explanation as the dashboard shows it: the training examples behind a prediction, as pictures."""

import base64
from typing import Any

import numpy as np

from ..monitoring.pictures import png
from .explaining import Explanation

_SHOWN_VALUES = 12  # of an example that is no image


def explanation_page(found: Explanation, split: str, index: int) -> dict[str, Any]:
    """The example, then what is behind each contribution, with pictures.

    Args:
      found: the explanation.
      split: the part that the example is in.
      index: its offset there.
    """
    examples = [_card(found.x, str(found.name(found.label)), f"{split} {index}", found.text(found.x))]
    for each, neighbour in zip(found.contributions, found.neighbours, strict=True):
        x = None if neighbour is None else neighbour.x
        text = None if x is None else found.text(x)
        title = "initial" if neighbour is None else "" if text else str(found.name(neighbour.y))
        place = f"step {each.created:,}" + ("" if neighbour is None else f", {neighbour.place}")
        examples.append(_card(x, f"{title} {each.share:+.1%}".strip(), place, text))
    return {
        "label": str(found.name(found.label)),
        "predicted": str(found.name(found.predicted)),
        "layer": found.layer,
        "examples": examples,
    }


def _card(x: np.ndarray | None, title: str, note: str, text: str | None) -> dict[str, Any]:
    """One example: its text if it is one, its picture if it is an image, else its first values."""
    picture, values = None, text
    if text is None and x is not None and x.ndim in (2, 3) and (x.ndim == 2 or x.shape[2] in (1, 3)):
        picture = base64.b64encode(png(x)).decode()
    elif text is None and x is not None:
        values = ", ".join(f"{value:.3g}" for value in x.ravel()[:_SHOWN_VALUES].tolist())
    return {"title": title, "note": note, "picture": picture, "values": values}
