"""The smallest configuration of every kind of learner that reads vectors of numbers."""

from typing import Any

from lamina.learners import LearnerConfig
from pydantic import TypeAdapter

parse = TypeAdapter(LearnerConfig).validate_python
SMALLEST: dict[str, dict[str, Any]] = {
    "linear": {"value_rate": 0.1},
    "rbf": {"value_rate": 0.1, "temperature": 1.0},
    "softmax": {"value_rate": 0.1, "temperature": 1.0, "weight_rate": 0.1},
    "naive_softmax": {"value_rate": 0.1, "temperature": 1.0},
    "knn": {"temperature": 1.0},
    "gauge": {"value_rate": 0.1, "temperature": 1.0, "weight_rate": 0.1, "gauge": 1.0},
    "laplace": {"value_rate": 0.1, "temperature": 1.0},
    "matern32": {"value_rate": 0.1, "temperature": 1.0},
    "matern52": {"value_rate": 0.1, "temperature": 1.0},
    "rational_quadratic": {"value_rate": 0.1, "temperature": 1.0},
    "polynomial": {"value_rate": 0.1, "temperature": 1.0},
    "cosine": {"value_rate": 0.1},
    "mlp": {},
    "parametric_softmax": {"entries": 5, "temperature": 1.0},
    "mixed": {"layers": {"readout": {"kind": "dense"}}},
    "vit": {"image": (1, 3, 1), "patch": 1, "width": 4, "heads": 2},
}
