"""Streams of river's: their columns, classes, and what is said where they cannot be had."""

import numpy as np
import pytest
from lamina.errors import ConfigError, MissingDataError
from lamina.stream import StreamConfig, open_source

datasets = pytest.importorskip("river.datasets")


def test_rows_are_rivers_own() -> None:
    source = open_source(StreamConfig(source="river:ImageSegments", shuffle=False))
    rows = list(datasets.ImageSegments())
    assert source.length == len(rows)
    assert source.schema.classes == tuple(sorted({target for _, target in rows}))
    found = source.read(100, 110)
    for place, (record, target) in enumerate(rows[100:110]):
        np.testing.assert_allclose(found["x"][place], list(record.values()), rtol=1e-6)
        assert source.schema.classes[found["y"][place]] == target


def test_features_may_be_chosen() -> None:
    source = open_source(
        StreamConfig(source="river:ImageSegments", shuffle=False, features=("hue-mean", "exred-mean"))
    )
    [record] = [record for record, _ in list(datasets.ImageSegments())[3:4]]
    expected = [[record["hue-mean"], record["exred-mean"]]]
    np.testing.assert_allclose(source.read(3, 4)["x"], expected, rtol=1e-6)


def test_regression_has_numbers_as_targets() -> None:
    source = open_source(StreamConfig(source="river:TrumpApproval", shuffle=False))
    assert source.schema.classes is None
    targets = [target for _, target in datasets.TrumpApproval()]
    np.testing.assert_allclose(source.read(0, 1001)["y"][:, 0], targets, rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "split", "kind", "parts"),
    [
        ("river:Segments", None, ConfigError, "ImageSegments"),
        ("river:ImageSegments", "test", ConfigError, "one split, train"),
        ("river:Elec2", None, MissingDataError, "Elec2().download()"),
    ],
)
def test_what_cannot_be_had_is_said(
    source: str, split: str | None, kind: type, parts: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("RIVER_DATA", str(tmp_path))
    with pytest.raises(kind, match=parts.replace("(", r"\(").replace(")", r"\)")):
        open_source(StreamConfig(source=source), split)


def test_columns_of_words_are_refused() -> None:
    with pytest.raises(Exception, match="expected a number in the column"):
        open_source(StreamConfig(source="river:ImageSegments", shuffle=False, features=("colour",)))
