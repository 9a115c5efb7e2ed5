"""The examples in the docstrings of the command line's and the harness's modules."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["config", "finite", "origin"])
def test_docstring_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"lamina.continual.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
