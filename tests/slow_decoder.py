"""A decoder in NumPy, token by token and head by head: what the fast one is held against."""

from typing import Any

import jax
import numpy as np
from flax import nnx
from lamina.learners.decoder_config import DecoderConfig


class Copied:
    """A database's columns as they were, before an update consumes them."""

    def __init__(self, database: Any) -> None:
        self._columns = {name: database.column(name) for name in ("created", "keys", "values")}
        self.database = self

    def column(self, name: str) -> np.ndarray:
        return self._columns[name]


def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * (1 + scale)


def turn(head: np.ndarray, position: int, base: float) -> np.ndarray:
    pairs = head[: len(head) // 2] + 1j * head[len(head) // 2 :]
    turned = pairs * np.exp(1j * position * base ** (-np.arange(len(pairs)) / len(pairs)))
    return np.concatenate([turned.real, turned.imag])


def slow_attention(
    x: np.ndarray, texts: np.ndarray, p: Any, heads: int, groups: int, window: int, base: float
) -> np.ndarray:
    """One sequence [T, D], token by token and head by head."""
    size = p["query"]["kernel"].shape[1] // heads
    shape = len(x), -1, size
    q = norm((x @ p["query"]["kernel"]).reshape(shape), p["query_norm"]["scale"])
    k = norm((x @ p["key"]["kernel"]).reshape(shape), p["key_norm"]["scale"])
    v = (x @ p["value"]["kernel"]).reshape(shape)
    out = np.zeros((len(x), heads, size))
    for t in range(len(x)):
        for head in range(heads):
            group = head // (heads // groups)
            seen = [s for s in range(t + 1) if texts[s] == texts[t] and t - s < window]
            scores = [turn(q[t, head], t, base) @ turn(k[s, group], s, base) / np.sqrt(size) for s in seen]
            weights = np.exp(scores - np.max(scores))
            out[t, head] = weights @ v[seen, group] / weights.sum()
    return out.reshape(len(x), -1) @ p["out"]["kernel"]


def slow_logits(
    x: np.ndarray, p: Any, config: DecoderConfig, memories: Any, nudge: np.ndarray | None = None
) -> np.ndarray:
    """Logits [T, C] of one sequence [T, 2]; `nudge` [T, D] is added to the first layer's answer."""
    stream = p["embedding"][x[:, 0]] * np.sqrt(config.width)
    for number, kind in enumerate(config.kinds):
        layer = p["layers"][number]
        local = (number + 1) % config.global_every != 0
        change = slow_attention(
            norm(stream, layer["before_attention"]["scale"]),
            x[:, 1],
            layer["attention"],
            config.heads,
            config.groups or config.heads,
            config.window if local else len(x),
            config.local_base if local else config.global_base,
        )
        stream = stream + norm(change, layer["after_attention"]["scale"])
        inner = norm(stream, layer["before_feed_forward"]["scale"])
        part = layer.get("feed_forward", {})
        if kind == "geglu":
            gate, up = inner @ part["gate"]["kernel"], inner @ part["up"]["kernel"]
            gelu = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
            change = norm((gelu * up) @ part["down"]["kernel"], layer["after_feed_forward"]["scale"])
        elif kind == "cos_bochner":
            features = np.cos(inner @ part["frequencies"] + part["phases"])
            change = np.sqrt(2 / features.shape[1]) * features @ part["values"]
        else:
            database = memories[f"ffn{number}"].database
            live = database.column("created") >= 0
            keys, values = database.column("keys")[live], database.column("values")[live]
            squares = np.sum((inner[:, None] - keys) ** 2, axis=2)
            change = np.exp(-squares / (2 * config.rbf.temperature * np.sqrt(config.width))) @ values
        stream = stream + change
        if nudge is not None and number == 0:
            stream = stream + nudge
    return norm(stream, p["norm"]["scale"]) @ p["embedding"].T


def plain(parameters: Any) -> Any:
    """Parameters as nested dictionaries of numpy's arrays."""
    return jax.tree.map(np.asarray, nnx.to_pure_dict(parameters))


def slow_losses(
    x: np.ndarray,
    y: np.ndarray,
    p: Any,
    config: DecoderConfig,
    memories: Any,
    nudge: np.ndarray | None = None,
) -> np.ndarray:
    """Losses [B] of sequences [B, T, 2], summed over their words."""
    losses = np.zeros(len(x))
    for row in range(len(x)):
        logits = slow_logits(x[row], p, config, memories, nudge)
        for t in np.flatnonzero(y[row, :, 0] >= 0):
            shifted = logits[t] - logits[t].max()
            losses[row] += np.log(np.exp(shifted).sum()) - shifted[y[row, t, 0]]
    return losses
