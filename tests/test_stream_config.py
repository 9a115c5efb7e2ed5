"""The config: plain values in and out, unknown keys and wrong types refused, doctests."""

import doctest
import importlib
import json

import pytest
from lamina.stream import GivenStatistics, StreamConfig
from lamina.stream.config import config_from_json, config_to_json
from pydantic import TypeAdapter, ValidationError

PARSE = TypeAdapter(StreamConfig).validate_python


def test_plain_values_as_yaml_gives_them():
    values = {
        "source": "files:*.csv",
        "features": ["a", "b"],
        "classes": ["x", "y"],
        "standardise": {"mean": [0.5, 0.4], "std": 0.2, "scale": 255},
        "teacher": {"width": 7},
        "runner_options": ["--direct_num_workers=2"],
    }
    config = PARSE(values)
    assert config.features == ("a", "b")
    assert config.standardise == GivenStatistics(mean=(0.5, 0.4), std=0.2, scale=255)
    assert config.teacher.width == 7
    assert config_from_json(json.dumps(config_to_json(config))) == config
    assert hash(config) == hash(PARSE(values))
    assert PARSE({"source": "digits", "classes": 10}).classes == 10


@pytest.mark.parametrize(
    "values",
    [
        {"sauce": "digits"},
        {"segment_length": 0},
        {"limit": "ten"},
        {"limit": -1},
        {"seed": -1},
        {"augment": "imagenet"},
        {"on_bad_input": "ignore"},
        {"standardise": "always"},
        {"standardise": {"mean": 0.0}},
        {"standardise": {"mean": 0.0, "std": 1.0, "scale": 0}},
        {"standardise": {"mean": 0.0, "std": 1.0, "sclae": 2}},
        {"teacher": {"depth": 3}},
        {"lead_segments": 0},
    ],
)
def test_wrong_values_are_refused(values):
    with pytest.raises(ValidationError):
        PARSE({"source": "digits", **values})


def test_seed_is_inherited_only_where_there_is_none():
    assert StreamConfig(source="digits").with_seed(5).seed == 5
    assert StreamConfig(source="digits", seed=0).with_seed(5).seed == 0


def test_content_is_what_the_log_depends_on():
    content = StreamConfig(source="digits").content()
    assert {"source", "split", "seed", "shuffle", "limit", "augment", "segment_length"} <= set(content)
    for name in ("standardise", "flatten", "on_bad_input", "lead_segments", "drop_consumed", "runner"):
        assert name not in content


@pytest.mark.parametrize(
    "name", ["config", "schema", "randomness", "standardise", "sources", "sources.table"]
)
def test_examples_in_docstrings(name):
    outcome = doctest.testmod(importlib.import_module(f"lamina.stream.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
