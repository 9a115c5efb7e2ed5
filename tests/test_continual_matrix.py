"""Transfer and forgetting against matrices worked out by hand."""

import pytest
from lamina.continual.matrix import continual_metrics

NAMES = (
    "average_accuracy",
    "bwt_gem",
    "bwt_triangular",
    "fwt_gem",
    "forgetting_max",
    "forgetting_first",
)


@pytest.mark.parametrize(
    ("matrix", "untrained", "expected"),
    [
        # one task: nothing came before and nothing after
        ([[0.8]], [0.1], (0.8, None, None, None, None, None)),
        # average (.5 + .9)/2; R21 − R11 = −.3; R12 − b2 = .2 − .25
        ([[0.8, 0.2], [0.5, 0.9]], [0.1, 0.25], (0.7, -0.3, -0.3, -0.05, 0.3, 0.3)),
        (
            [[0.9, 0.1, 0.2], [0.6, 0.8, 0.3], [0.7, 0.4, 1.0]],
            [0.1, 0.2, 0.1],
            (
                (0.7 + 0.4 + 1.0) / 3,
                ((0.7 - 0.9) + (0.4 - 0.8)) / 2,
                ((0.6 - 0.9) + (0.7 - 0.9) + (0.4 - 0.8)) / 3,
                ((0.1 - 0.2) + (0.3 - 0.1)) / 2,
                ((0.9 - 0.7) + (0.8 - 0.4)) / 2,
                ((0.9 - 0.7) + (0.8 - 0.4)) / 2,
            ),
        ),
        # the largest is not the first: task 1 is better after phase 2, and better still before it was taught
        (
            [[0.5, 0.6, 0.0], [0.7, 0.4, 0.0], [0.6, 0.3, 0.9]],
            [],
            (0.6, 0.0, (0.2 + 0.1 - 0.1) / 3, None, ((0.7 - 0.6) + (0.6 - 0.3)) / 2, (-0.1 + 0.1) / 2),
        ),
        # what needs a missing accuracy is missing, the rest is not
        ([[0.5, None], [0.25, 0.75]], [0.0, 0.5], (0.5, -0.25, -0.25, None, 0.25, 0.25)),
        ([], [], (None, None, None, None, None, None)),
    ],
)
def test_metrics(
    matrix: list[list[float | None]], untrained: list[float], expected: tuple[float | None, ...]
) -> None:
    found = continual_metrics(matrix, untrained)
    assert set(found) == set(NAMES)
    for name, value in zip(NAMES, expected, strict=True):
        assert found[name] == (value if value is None else pytest.approx(value, abs=1e-12)), name


def test_what_is_not_square_is_refused() -> None:
    with pytest.raises(ValueError, match="square"):
        continual_metrics([[0.5, 0.5]])
