"""Dense layers that show their inputs and output gradients to the optimiser.

An optimiser is an optax transformation. Beside gradients and parameters the learner hands it two trees of
the parameters' own structure, `inputs` and `output_gradients`, that hold arrays at the weights of dense
layers and `optax.MaskedNode` elsewhere. Transformations that do not ask for them are plain optax.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .layers import Recall

_LECUN = nnx.initializers.lecun_normal()


class DenseSignals(NamedTuple):
    """What a step knows of one dense layer. Its weights' gradient is inputsᵀ·output_gradients."""

    inputs: jax.Array  # [..., D] what the layer was given
    output_gradients: jax.Array  # [..., F] gradient of the batch-mean loss at each output


class DenseLayer(nnx.Module):
    """y = x·W: a named layer of trained weights W [D, F], without a bias."""

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        *,
        rngs: nnx.Rngs,
        draw: nnx.Initializer = _LECUN,
    ) -> None:
        self.name = name
        self.kernel = nnx.Param(draw(rngs.params(), (inputs, outputs), jnp.result_type(float)))

    def __call__(self, inputs: jax.Array, recall: Recall) -> jax.Array:
        """Outputs [..., F] for inputs [..., D]."""
        return recall.note(self.name, inputs, inputs @ self.kernel[...])


def weight_names(network: nnx.Module, parameters: Any) -> Any:
    """A tree of the parameters' structure: a dense layer's name at its weights, "" elsewhere.

    Args:
      network: the network.
      parameters: its parameters (`nnx.State`).
    """
    modules = nnx.iter_modules(network)
    names = {(*path, "kernel"): layer.name for path, layer in modules if isinstance(layer, DenseLayer)}

    def name(path: Any, _: Any) -> str:
        return names.get(tuple(key.key for key in path if hasattr(key, "key")), "")

    return jax.tree_util.tree_map_with_path(name, parameters)


def signal_trees(names: Any, signals: Mapping[str, DenseSignals]) -> dict[str, Any]:
    """The two trees that transformations are given, by argument name.

    Args:
      names: as `weight_names` makes it.
      signals: by layer name.
    """

    def tree(part: str) -> Any:
        return jax.tree.map(lambda n: getattr(signals[n], part) if n else optax.MaskedNode(), names)

    return {part: tree(part) for part in DenseSignals._fields}


def for_dense_layers(
    network: nnx.Module, dense: optax.GradientTransformation, others: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """Trains the weights of a network's dense layers with one transformation, all else with another.

    Args:
      network: the network.
      dense: may ask for `inputs` and `output_gradients`.
      others: for norm scales, embeddings and other parameters.
    """
    names = weight_names(network, nnx.state(network))
    labels = jax.tree.map(lambda n: "dense" if n else "others", names)
    return optax.partition({"dense": dense, "others": others}, labels)
