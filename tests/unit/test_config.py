"""The operator's configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from elbowroom.config import ConfigError, load
from elbowroom.core.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_what_is_left_out_is_as_it_was(file: Path) -> None:
    file.write_text("")
    assert load(file).policy() == Policy()


def test_durations_and_quantities_are_written_as_in_kubernetes(file: Path) -> None:
    file.write_text("movesPerNode: 3\nbindWithin: 1m30s\nguestSpare: 256Mi\nfailures: 1\n")
    assert load(file).policy() == Policy(moves_per_node=3, bind_within=90.0, guest_spare=256 << 20, failures=1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("bindWithn: 5s", "bindWithn: Extra inputs are not permitted"),
        ("bindWithin: soon", "bindWithin: 'soon' is not a duration such as 10m, 90s or 1h30m"),
        ("movesPerNode: 0", "movesPerNode: Input should be greater than or equal to 1"),
        ("- a list", "the file: Input should be a valid dictionary"),
        ("a: [", "is not YAML: while parsing"),
    ],
)
def test_a_bad_file_gets_one_sentence_that_names_the_field(file: Path, content: str, told: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file)
