"""What predicting one more token costs, layer by layer: so that layers of different kinds can be matched.

Multiplications and additions count one each, so that a product with a matrix [D, F] takes 2·D·F operations;
a cosine or an exponential counts as one. Bytes are those of all numbers that are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from flax import nnx

from .cos_bochner import CosBochner
from .decoder import Decoder
from .feed_forward import FeedForward, GeGLU, GrowingFeedForward
from .networks import Network


@dataclass(frozen=True)
class Cost:
    """Of predicting one token."""

    flops: int
    bytes: int  # read

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


def decoder_costs(network: Network, entries: Mapping[str, int], context: int) -> dict[str, Cost]:
    """Costs by part: attention0, ffn0, attention1, …, and the read-out of the words.

    Args:
      network: a decoder; of others nothing is told.
      entries: of each growing layer, by name.
      context: tokens that attention looks back on, where its window allows.
    """
    if not isinstance(network, Decoder):
        return {}
    found = {}
    for number, layer in enumerate(network.layers):
        attention = layer.attention
        seen = min(context, network.window) if layer.local else context
        cached = 2 * attention.groups * attention.size * seen  # numbers of keys and values
        per_score = 4 * attention.heads * attention.size + attention.heads
        itemsize = attention.query.kernel.dtype.itemsize
        found[f"attention{number}"] = _products(attention) + Cost(per_score * seen, cached * itemsize)
        found[f"ffn{number}"] = feed_forward_cost(layer.feed_forward, entries)
    words, width = network.embedding.shape
    read_out = 2 * words * width
    return found | {"readout": Cost(read_out, words * width * network.embedding.dtype.itemsize)}


def feed_forward_cost(part: FeedForward, entries: Mapping[str, int]) -> Cost:
    """The cost of a layer's feed-forward part.

    Args:
      part: the part.
      entries: of each growing layer, by name.
    """
    match part:
        case GeGLU():
            hidden = part.down.kernel.shape[0]
            return _products(part) + Cost(2 * hidden, 0)
        case CosBochner():
            return _products(part) + Cost(2 * part.values.shape[0], 0)
        case GrowingFeedForward():
            spec, count = part.memory.spec, entries.get(part.memory.name, 0)
            numbers = spec.key_features + spec.value_features
            gate = Cost(0, 0) if part.gate is None else _products(part)
            # Beside two products an exponential, the norms that make it a distance, and a coefficient.
            itemsize = jax.numpy.result_type(float).itemsize
            return gate + Cost((2 * numbers + 4) * count, (numbers + 1) * count * itemsize)
    raise TypeError(f"no cost is known of {type(part).__name__}")


def _products(module: nnx.Module) -> Cost:
    """Of one product with each matrix in a module."""
    leaves = jax.tree.leaves(nnx.state(module, nnx.Param))
    matrices = sum(2 * leaf.size for leaf in leaves if leaf.ndim == 2)
    return Cost(matrices, sum(leaf.nbytes for leaf in leaves))
