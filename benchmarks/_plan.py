"""What `benchmarks.pass` measures, and the random examples it measures with."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass through a network of two growing RBF blocks and a growing readout.

    The growing memory is measured at each of `entries`, the fixed one at the first and the last.
    """

    features: int  # D
    examples: int  # of the whole pass
    initial_capacity: int  # rows of the growing memory at the start
    entries: tuple[int, ...]  # N after the timed steps of each point, rising
    rounds: int  # timed steps a point
    blocks: int = 2
    classes: int = 10  # C
    batch: int = 16  # B
    temperature: float = 10.0
    value_rate: float = 10.0

    @property
    def steps(self) -> int:
        """Steps of the whole pass."""
        return self.examples // self.batch

    @property
    def untimed(self) -> tuple[int, ...]:
        """N before the steps of each point: one to compile, then the timed ones."""
        return tuple(entries - self.batch * (self.rounds + 1) for entries in self.entries)

    @property
    def fixed_rows(self) -> int:
        """Rows that the fixed-capacity memory allocates: the pass and one batch of initial entries."""
        return self.examples + self.batch

    def examples_of(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """x [B, D] float32 as standardised images are, y [B] labels."""
        draw = np.random.default_rng(step)
        x = draw.standard_normal((self.batch, self.features), np.float32)
        return x, draw.integers(self.classes, size=self.batch)


PLANS = {
    "full": Plan(
        features=3072,
        examples=50_000,
        initial_capacity=4096,  # as in the presets
        entries=(4_096, 8_000, 16_000, 32_000, 50_000),
        rounds=9,
    ),
    "quick": Plan(
        features=1024,
        examples=12_000,
        initial_capacity=1024,
        entries=(3_000, 6_000, 12_000),
        rounds=5,
    ),
    "tiny": Plan(
        features=24,
        examples=512,
        initial_capacity=128,
        entries=(128, 512),
        rounds=2,
    ),
}
