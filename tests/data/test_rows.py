"""Rows of one's own: what is read, what is inferred from it, and that it comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import setwise as sw
from setwise.data import Column, Schema, read_rows
from setwise.data.rows import write_rows
from setwise.data.schema import FEW, SCALE

ROWS = [
    {"kind": "disc", "x": 0.5, "many": 100 * place, "on": place % 2 == 0, "place": [1.0, place]}
    for place in range(FEW + 1)
]


def kinds(schema: Schema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


def test_lines_are_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_rows(file, [{"a": "ä", "b": [1, 2]}, {"a": "", "b": []}])
    file.write_text(file.read_text() + "\n")  # an empty line is none
    assert read_rows(file) == [{"a": "ä", "b": [1, 2]}, {"a": "", "b": []}]


def test_parquet_is_read_as_lines_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet") == ROWS
    monkeypatch.setattr("setwise.data.rows._MOST_VALUES", 6 * len(ROWS) - 1)  # a place has two
    with pytest.raises(ValueError, match=r"rows.parquet: 126 values, more than the 125 read"):
        read_rows(tmp_path / "rows.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"broken.parquet: "):
        read_rows(tmp_path / "broken.parquet")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "rows.jsonl: has no rows"),
        ('{"a": 1}\n{"a": ', "rows.jsonl: line 2: not JSON"),
        ("[1]\n", "rows.jsonl: line 1: expected an object of JSON, got list"),
        ("\xff", "rows.jsonl: line 1: not JSON"),
    ],
)
def test_what_is_no_rows_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=said):
        read_rows(tmp_path / "rows.jsonl")
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"rows.csv: expected a file that ends in .jsonl or"):
        read_rows(tmp_path / "rows.csv")


def test_columns_are_inferred_from_values() -> None:
    schema = Schema.infer("rows", ROWS)
    assert kinds(schema) == {
        **{"kind": "class", "x": "number", "many": "whole", "on": "boolean", "place": "number"}
    }
    few = [{"n": n % FEW} for n in range(100)]
    assert kinds(Schema.infer("rows", few)) == {"n": "class"}
    assert kinds(Schema.infer("rows", few, few_are_classes=False)) == {"n": "whole"}
    blocks = [sw.Bernoulli(1), *(sw.Gaussian(1, scale=SCALE),) * 2, sw.Bernoulli(1)]
    assert schema.features == sw.Features(*blocks, sw.Gaussian(2, scale=SCALE))
    assert Schema.infer("rows", ["a", "b"]).features == sw.Features(sw.Categorical(2))


@pytest.mark.parametrize(
    "elements",
    [
        ROWS,
        ["a", "c", "b", "a"],
        [3, 1, 3],
        [True, False],
        [[0.25, 7.0, 10.0], [1.5, -2.0, 11.0]],
        [[1, 2], [3, 4]],
        list(range(1000, 1100)),
    ],
    ids=["objects", "texts", "few", "booleans", "points", "whole points", "many"],
)
def test_elements_come_back(elements: list[Any]) -> None:
    """Through JSON, as a config keeps what was inferred."""
    schema = Schema.infer("elements", elements)
    saved = {"columns": [vars(column) for column in schema.columns], "bare": schema.bare}
    again = Schema.read(json.loads(json.dumps(saved)))
    assert again == schema
    encoded = again.encode(elements)
    assert encoded.shape == (len(elements), schema.width)
    schema.features.check_targets("target", encoded)
    back = again.decode(encoded)
    assert [type(one) for one in back] == [type(one) for one in elements]
    for given, found in zip(elements, back, strict=True):
        given, found = (one if isinstance(one, dict) else {"": one} for one in (given, found))
        assert given.keys() == found.keys()
        for name, value in given.items():
            exact = isinstance(value, str | bool | int)
            assert found[name] == (value if exact else pytest.approx(value, rel=1e-5, abs=1e-5))
    assert again.encode([]).shape == (0, schema.width)


def test_numbers_have_a_mean_of_0_and_a_spread_of_1() -> None:
    encoded = Schema.infer("rows", list(range(1000, 1100))).encode(list(range(1000, 1100)))
    torch.testing.assert_close(encoded.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoded.std(correction=0), torch.tensor(1.0))


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        ([], "things: every set is empty"),
        ([{}], "things: elements have no columns"),
        ([{"a": 1}, {"b": 1}], r"things: expected objects with a, got \{'b': 1\}"),
        (
            [{"a": 1}, {"a": 1, "c": 2, "b": 3}],
            r"things: expected objects with a, got \{'a': 1, 'c'",
        ),
        ([1e200, -1e200], "value: .*finite numbers"),  # whose spread would be none
        ([{"a": 1}, 2], "things: expected objects with a, got 2"),
        (
            [{"a": "x"}, {"a": 1}],
            "a: expected texts, or true and false, or finite numbers.*got 'x'",
        ),
        ([{"a": 1.0}, {"a": None}], "a: .*got 1.0 and None"),
        ([{"a": float("nan")}], "a: .*finite numbers"),
        ([[1.0], [1.0, 2.0]], "value: .*lists of them of one length"),
        ([[[1.0]]], "value: .*got"),
    ],
)
def test_what_cannot_be_inferred_is_told(elements: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schema.infer("things", elements)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"kind": "box"}, "kind: unknown 'box'; known: disc"),
        ({"x": "far"}, "x: expected a finite one, got 'far'"),
        ({"on": 1}, "on: expected true or false, got 1"),
        ({"place": [1.0]}, r"place: expected a list of 2 finite numbers, got \[1.0\]"),
    ],
)
def test_values_of_another_kind_are_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schema.infer("rows", ROWS).encode([ROWS[0] | value])


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "text"}, {"width": 0}, {"spread": 0.0}, {"classes": (1.5,)}, {"centre": "0"}],
    ids=str,
)
def test_columns_of_a_damaged_file_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="column 'a': not one that was inferred"):
        Column(**({"name": "a", "kind": "number"} | wrong))
    with pytest.raises(ValueError, match="not the columns of data"):
        Schema.read({"columns": [{"colour": 1}]})
