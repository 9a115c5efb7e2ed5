"""Plateau, power law, forgetting and recovery against closed forms."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamina.monitoring import plateau
from lamina.monitoring.plateau import BEGIN, END, find_plateau, fit_power_law, loss_curve
from lamina.monitoring.recovery import accuracy_curve


def evaluation(step, task, accuracy=0.5, phase="pretrain", **columns):
    return {"kind": "evaluation", "step": step, "task": task, "accuracy": accuracy, "phase": phase, **columns}


def test_plateau_of_straight_lines_is_where_they_cross():
    """From 10 at step 0 to 4 at 600, level until 1000, then down by 1 in 100 steps."""
    steps = [0, 600, 1000, 1400]
    found = find_plateau(steps, [10.0, 4.0, 4.0, 0.0], 4.0)
    assert found.start == pytest.approx(600 * (10 - 4 * BEGIN) / 6)
    assert found.end == pytest.approx(1000 + 100 * 4 * (1 - END))
    assert found.length == pytest.approx(found.end - found.start)


def test_the_first_fall_begins_and_the_last_one_ends_a_plateau():
    losses = [6.0, 4.0, 6.0, 4.0, 3.0, 4.1, 3.9, 3.7]
    found = find_plateau([0, 1, 2, 3, 4, 5, 6, 7], losses, 4.0)
    assert found.start == pytest.approx((6 - 4.2) / 2)
    assert found.end == pytest.approx(6 + 0.5)


def test_a_plateau_without_an_end_has_no_length():
    found = find_plateau([0, 10, 20], [9.0, 4.0, 3.9], 4.0)
    assert found.start is not None
    assert (found.end, found.length) == (None, None)
    back = find_plateau([0, 10, 20], [9.0, 3.0, 3.9], 4.0)  # it was below, and is no more
    assert back.end is None
    assert find_plateau([0, 10], [9.0, 8.0], 4.0).start is None
    assert find_plateau([], [], 4.0).end is None


def test_a_curve_below_from_the_first_begins_and_ends_there():
    found = find_plateau([5, 10], [1.0, 0.5], 4.0)
    assert (found.start, found.end, found.length) == (5.0, 5.0, 0.0)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.floats(0.1, 10))
def test_plateau_against_a_fine_walk_along_the_curve(losses, level):
    steps = list(range(0, 10 * len(losses), 10))
    found = find_plateau(steps, losses, level)
    fine = np.linspace(0, steps[-1], 1000 * (len(losses) - 1) + 1)
    values = np.interp(fine, steps, losses)
    if found.start is not None:
        assert (values[fine < found.start - 0.02] >= BEGIN * level - 1e-9).all()
    else:
        assert min(losses) >= BEGIN * level
    if found.end is not None:
        assert (values[fine > found.end + 0.02] <= END * level + 1e-9).all()
    else:
        assert losses[-1] >= END * level


@pytest.mark.parametrize(("steps", "losses", "level"), [([1, 2], [1.0], 1.0), ([1], [1.0], 0.0)])
def test_curves_that_are_none_are_refused(steps, losses, level):
    with pytest.raises(ValueError, match="expected"):
        find_plateau(steps, losses, level)


def test_loss_curve_takes_the_last_evaluation_of_a_step():
    rows = [
        evaluation(10, "old", attribute_loss=3.0),
        evaluation(0, "old", attribute_loss=9.0),
        evaluation(10, "old", attribute_loss=2.5),
        evaluation(5, "new", attribute_loss=1.0),
        evaluation(7, "old", attribute_loss=None),
        evaluation(8, "old"),
        {"kind": "step", "step": 4},
    ]
    assert loss_curve(rows, "old") == ([0, 10], [9.0, 2.5])


def test_published_power_law_is_found_again():
    sizes = [8192, 16384, 32768, 65536]
    fit = fit_power_law(sizes, [0.43 * n**0.81 for n in sizes])
    assert (fit.factor, fit.exponent) == pytest.approx((0.43, 0.81))
    assert fit(16384) == pytest.approx(0.43 * 16384**0.81)
    assert fit.error == pytest.approx(0, abs=1e-9)


def test_power_law_is_least_squares_of_logarithms():
    """Three points e⁰, e¹, e² with log y = 0, 1, 1: slope ½, residuals −1/6, 1/3, −1/6."""
    fit = fit_power_law(np.exp([0.0, 1.0, 2.0]).tolist(), np.exp([0.0, 1.0, 1.0]).tolist())
    assert fit.exponent == pytest.approx(0.5)
    assert np.log(fit.factor) == pytest.approx(2 / 3 - 0.5)
    assert fit.error == pytest.approx(np.sqrt((1 / 36 + 1 / 9 + 1 / 36) / 1 / 2))
    assert fit_power_law([1.0, 2.0], [1.0, 4.0]).error is None
    for x, y in (([1.0], [1.0]), ([2.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 2.0])):
        with pytest.raises(ValueError, match="expected"):
            fit_power_law(x, y)


def test_recovery_of_a_hand_made_curve():
    rows = [
        evaluation(0, "pretrain", 0.0),
        evaluation(100, "pretrain", 0.9),
        evaluation(120, "pretrain", 0.5, "finetune"),
        evaluation(120, "finetune", 0.2, "finetune"),
        evaluation(140, "pretrain", 0.3, "finetune"),
        evaluation(160, "pretrain", 0.45, "finetune"),
        evaluation(180, "pretrain", 0.4, "finetune"),
        evaluation(200, "pretrain", 0.1, "afterwards"),
    ]
    curve = accuracy_curve(rows, "finetune", "pretrain")
    assert curve.steps == (0, 20, 40, 60, 80)
    assert curve.accuracies == (0.9, 0.5, 0.3, 0.45, 0.4)
    assert curve.at(0) == 0.9
    assert curve.at(20) == 0.5
    assert curve.at(10) == pytest.approx(0.7)
    assert curve.at(81) is None
    assert curve.at(-1) is None
    found = curve.recovery()
    assert (found.before, found.lowest, found.lowest_step, found.last) == (0.9, 0.3, 40, 0.4)
    assert found.drop == pytest.approx(0.6)
    assert found.recovered == pytest.approx(0.15)
    assert found.regained == pytest.approx(0.25)


def test_nothing_lost_nothing_regained():
    rows = [evaluation(1, "a", 0.5), evaluation(2, "a", 0.6, "next")]
    assert accuracy_curve(rows, "next", "a").recovery().regained is None
    assert accuracy_curve(rows, "next", "b") is None
    assert accuracy_curve(rows, "later", "a") is None
    assert accuracy_curve(rows[1:], "next", "a") is None


def test_examples_in_docstrings():
    outcome = doctest.testmod(plateau)
    assert outcome.attempted > 0
    assert outcome.failed == 0
