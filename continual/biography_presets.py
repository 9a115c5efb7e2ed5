"""The presets of the biography task: facts about people, learnt in pretraining, then about others."""

from typing import Any


def _optimiser(rate: Any) -> dict[str, Any]:
    return {"kind": "adamw", "learning_rate": rate, "b2": 0.95, "weight_decay": 0.1}


def _cosine(first: float, steps: int, warmup: int = 0) -> dict[str, Any]:
    return {"kind": "cosine", "first": first, "steps": steps, "warmup": warmup}


def _phases(people: int, examples: int, rate: float) -> dict[str, Any]:
    """Pretraining, then fine-tuning on so many other people with a constant rate."""
    return {
        "pretrain": {"evaluate": ["pretrain"]},
        "finetune": {
            "stream": {"biography": {"people": people, "population": "finetune"}, "limit": examples},
            "learner": {"optimiser": _optimiser(rate)},
        },
    }


# Appended and read where a value's words are to be predicted: the gate of the prototype.
_AT_VALUES = {"reading": "values", "admission": "values"}

SMALL: dict[str, Any] = {
    "stream": {
        "source": "biography",
        "biography": {
            "people": 1024,
            "length": 64,
            "templates_per_attribute": 8,
            "held_out_templates": 2,
            "names": [64, 64, 64],
            "values": {
                "birth_date": [12, 28, 30],
                "birth_place": 40,
                "university": [6, 8],
                "major": 24,
                "company": [6, 8],
                "location": 24,
            },
            "location": "independent",
        },
        "limit": 96_000,
    },
    "learner": {
        "kind": "decoder",
        "post_norm": False,
        "optimiser": _optimiser(_cosine(4e-3, 6000, 20)),
        "cos_bochner": {"features": 2048, "temperature": 3, "rate_factor": 20},
        "rbf": {
            "temperature": 1,
            "value_rate": 10,
            "memory": {"initial_capacity": 32_768, "capacity": 32_768, "eviction": "oldest"},
            "tokens": _AT_VALUES,
        },
    },
    "phases": _phases(128, 6400, 5e-4),
    "batch_size": 16,
    "evaluation": {"every_examples": 320, "examples": 256},
}

# 1,500 steps of the same schedule: at the cap from step 205 on, it learns little more after 1,000.
SMALL_RBF: dict[str, Any] = {
    **SMALL,
    "stream": {**SMALL["stream"], "limit": 24_000},
    "learner": {**SMALL["learner"], "ffn": ["geglu", "rbf"]},
}

SMOKE: dict[str, Any] = {
    **SMALL,
    "stream": {
        **SMALL["stream"],
        "biography": {**SMALL["stream"]["biography"], "people": 32},
        "limit": 960,
        "segment_length": 256,
    },
    "learner": {
        **SMALL["learner"],
        "width": 32,
        "geglu": {"width": 64},
        "ffn": ["geglu", "rbf"],
        "optimiser": _optimiser(_cosine(1e-2, 120, 10)),
        "cos_bochner": {"features": 256, "temperature": 3, "rate_factor": 10},
        "rbf": {
            **SMALL["learner"]["rbf"],
            "memory": {"initial_capacity": 12_288, "capacity": 12_288, "eviction": "oldest"},
            "tokens": {"reading": "everywhere", "admission": "values"},
        },
    },
    "phases": _phases(16, 240, 2e-3),
    "batch_size": 8,
    "evaluation": {"every_examples": 240, "examples": 32},
}

LARGE: dict[str, Any] = {
    "stream": {"source": "biography", "limit": 16_000 * 128, "drop_consumed": True},
    "learner": {
        "kind": "decoder",
        "width": 512,
        "heads": 8,
        "geglu": {"width": 2048},
        "optimiser": _optimiser(_cosine(4e-4, 16_000)),
        "cos_bochner": {"features": 131_072, "temperature": 3, "rate_factor": 10},
        "rbf": {
            "temperature": 1,
            "value_rate": 10,
            "memory": {"initial_capacity": 262_144, "capacity": 1_048_576, "eviction": "smallest"},
            "tokens": _AT_VALUES,
        },
    },
    "phases": _phases(1024, 128 * 2000, 3e-5),
    "batch_size": 128,
    "evaluation": {"every_examples": 128 * 100, "examples": 512},
}
