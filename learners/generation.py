"""Writing texts word by word, with a cache of the attention's keys and values."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..errors import ConfigError
from .attention import Cache
from .decoder import Decoder
from .layers import Recall
from .learner import Learner
from .state import State
from .steps import ALL_HOT, ColdParts, Learnt, cold_of, learnt_of


class Generator:
    """Goes on with texts as a decoder predicts them.

    Args:
      learner: of texts.

    Raises:
      ConfigError: its network is no decoder.
    """

    def __init__(self, learner: Learner) -> None:
        network = learner.network_graph
        if not isinstance(nnx.merge(*network), Decoder):
            raise ConfigError("expected a learner of kind decoder, which writes texts; found another")
        self._graph = network[0]
        self._extend = jax.jit(self._extend_step)

    def __call__(
        self, state: State, prompt: np.ndarray, count: int, *, temperature: float = 0.0, seed: int = 0
    ) -> np.ndarray:
        """Writes words.

        Args:
          state: what is learnt; it stays usable.
          prompt: [B, T] the first words of B texts, T ≥ 1.
          count: how many words to add to each.
          temperature: words are drawn from softmax(logits / temperature); 0: the likeliest one.
          seed: of the draws.

        Returns:
          [B, count] int32.

        Raises:
          ConfigError: the prompt is empty, or a layer is read only where targets say.
        """
        if prompt.ndim != 2 or 0 in prompt.shape:
            raise ConfigError(f"expected a prompt of at least one word; found the shape {list(prompt.shape)}")
        learnt, cold = learnt_of(state), cold_of(state)
        # Reading the disk is no part of a compiled program.
        extend = self._extend_step if cold else self._extend
        batch, before = prompt.shape
        caches: Sequence[Cache] = self._network(learnt).empty_caches(batch, before + count)
        words, written, key = jnp.asarray(prompt, jnp.int32), [], jax.random.key(seed)
        start = 0
        for number in range(count):
            logits, caches = extend(learnt, words, jnp.int32(start), caches, cold)
            start += words.shape[1]
            chosen = _choose(logits[:, -1], temperature, jax.random.fold_in(key, number))
            written.append(np.asarray(chosen))
            words = chosen[:, None]
        return np.stack(written, axis=1) if written else np.empty((batch, 0), np.int32)

    def logits(self, state: State, words: np.ndarray, *, first: int) -> np.ndarray:
        """Logits [B, T, C] for words [B, T], the first so many seen at once, the others in turn."""
        learnt, cold = learnt_of(state), cold_of(state)
        extend = self._extend_step if cold else self._extend
        caches: Sequence[Cache] = self._network(learnt).empty_caches(*words.shape)
        found = []
        for start, stop in [(0, first), *((n, n + 1) for n in range(first, words.shape[1]))]:
            part = jnp.asarray(words[:, start:stop], jnp.int32)
            logits, caches = extend(learnt, part, jnp.int32(start), caches, cold)
            found.append(np.asarray(logits))
        return np.concatenate(found, axis=1)

    def _network(self, learnt: Learnt) -> Any:
        return nnx.merge(self._graph, learnt.parameters)

    def _extend_step(
        self,
        learnt: Learnt,
        words: jax.Array,
        start: jax.Array,
        caches: Sequence[Cache],
        cold: ColdParts = ALL_HOT,
    ) -> tuple[jax.Array, list[Cache]]:
        recall = Recall(learnt.databases, learnt.tables, None, cold)
        found: tuple[jax.Array, list[Cache]] = self._network(learnt).extend(words, start, caches, recall)
        return found


def _choose(logits: jax.Array, temperature: float, key: jax.Array) -> jax.Array:
    """One word for each row of logits [B, C], [B] int32."""
    if temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return jax.random.categorical(key, logits / temperature).astype(jnp.int32)
