"""The command line: what the shell proposes, and what is said about a word that makes no sense."""

from __future__ import annotations

import asyncio

import pytest
from elbowroom.kubectl.completion import propose
from elbowroom.kubectl.main import main

NAMES = {
    "POD": ["db", "dns", "web"],
    "VM": ["db"],
    "REQUEST": ["grow-db"],
    "NODE": ["node-1", "node-2"],
    "namespace": ["shop"],
}


def proposed(line: str) -> list[str]:
    asked: list[tuple[str | None, str | None]] = []

    async def names(what: str, namespace: str | None, context: str | None) -> list[str]:
        asked.append((namespace, context))
        return NAMES[what]

    found = [item.partition("\t")[0] for item in asyncio.run(propose(line.split(" "), names))]
    assert asked in ([], [("shop", None)] if "-n shop" in line else [(None, None)])
    return found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", ["plan", "grow", "migrate", "explain", "nodes", "vms"]),
        ("gr", ["grow"]),
        ("grow ", ["db", "dns", "web"]),
        ("grow d", ["db", "dns"]),
        ("grow -n shop w", ["web"]),
        ("grow db ", []),
        ("grow --cpu 4 d", ["db", "dns"]),
        ("grow db --no", ["--no-move", "--no-wait"]),
        ("migrate db --to n", ["node-1", "node-2"]),
        ("explain g", ["grow-db"]),
        ("vms -n s", ["shop"]),
        ("nodes -o ", ["text", "json"]),
        ("nodes ", []),
    ],
)
def test_what_the_shell_proposes(line: str, found: list[str]) -> None:
    assert proposed(line) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("grow db --cpu lots", "argument --cpu: 'lots' is not a quantity"),
        ("grow db --deadline soon", "argument --deadline: 'soon' is not a duration"),
        ("shrink db", "invalid choice: 'shrink'"),
        ("explain", "the following arguments are required: REQUEST"),
    ],
)
def test_a_word_that_makes_no_sense_is_named(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
