"""Measuring references that see all training images at once: nearest neighbours and kernel ridge (F.10).

Their settings are {"reference": {"kind": "knn" or "ridge", …}} with the options of the learners' classes.
"""

import time
from typing import Any

import jax
import numpy as np
from lamina.learners import Batch, Task
from lamina.learners.references import KernelRidgeRegression, NearestNeighbours

from .data import arrays_of, image_stream, images_of
from .experiment import Job, Measured
from .network import measure_images

_PART = 1000  # held-out examples predicted at once
_KINDS: dict[str, Any] = {"knn": NearestNeighbours, "ridge": KernelRidgeRegression}


def measure(job: Job) -> Measured:
    """Measures a reference, or else a network, on a data set of images."""
    if "reference" not in job.settings:
        return measure_images(job)
    begin = time.perf_counter()
    project = job.settings.get("project")
    arrays = arrays_of(image_stream(job.data, job.size, job.held_out, job.shared, project))
    options = dict(job.settings["reference"])
    learner = _KINDS[options.pop("kind")](Task(images_of(job.data).classes, classification=True), **options)
    state = _seen_all(learner, arrays)
    x, y = arrays["x_test"], arrays["y_test"]
    correct = 0
    for start in range(0, len(x), _PART):
        outputs = learner.predict(state, x[start : start + _PART])
        correct += int(np.sum(outputs.argmax(axis=1) == y[start : start + _PART]))
    return {
        "accuracy": round(100 * correct / len(x), 3),
        "examples": len(arrays["x_train"]),
        "entries": len(arrays["x_train"]),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _seen_all(learner: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The state after one update with all training examples."""
    x, y = arrays["x_train"], arrays["y_train"].astype(np.int32)
    batch = Batch(x, y, np.arange(len(x)))
    state, _ = learner.update(learner.init(jax.random.key(0)), batch)
    return state
