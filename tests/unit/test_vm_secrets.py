"""Who gets a certificate, and when."""

from __future__ import annotations

import asyncio
from typing import Any

from elbowroom.authority.vms import VmSecrets
from elbowroom.runner.tls import Identity
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import MaxRetryError


class Keeper:
    """Stands in for the one that writes Secrets, and says which."""

    def __init__(self) -> None:
        self.ensured: list[str] = []
        self.forgotten: list[str] = []
        self.then: dict[str, Any] = {}
        self.known: set[str] = set()

    async def given(self) -> frozenset[Identity]:
        return frozenset(Identity("shop", name) for name in self.known)

    async def ensure_vm(self, identity: Identity) -> None:
        self.ensured.append(identity.name)
        self.then.get(identity.name, lambda: None)()

    async def forget_vm(self, identity: Identity) -> None:
        self.forgotten.append(identity.name)


def secrets(*names: str) -> tuple[VmSecrets, Keeper, list[Identity]]:
    there = [Identity("shop", name) for name in names]
    keeper = Keeper()
    return VmSecrets(keeper, lambda: there), keeper, there  # type: ignore[arg-type]


def test_each_vm_is_seen_to_once_an_hour() -> None:
    vms, keeper, _ = secrets("a", "b")
    for now in (0.0, 1.0, 3599.0):
        asyncio.run(vms.look(now))
    assert sorted(keeper.ensured) == ["a", "b"]
    asyncio.run(vms.look(3600.0))
    assert sorted(keeper.ensured) == ["a", "a", "b", "b"]


def test_who_comes_while_thousands_are_seen_to_is_next() -> None:
    names = [f"vm{number}" for number in range(100)]
    vms, keeper, there = secrets(*names)
    keeper.then["vm99"] = lambda: there.append(Identity("shop", "late"))
    asyncio.run(vms.look(0.0))
    assert sorted(keeper.ensured) == sorted([*names, "late"])
    assert keeper.ensured.index("late") < 40


def test_who_has_been_gone_for_a_while_is_forgotten_and_who_comes_back_is_not() -> None:
    vms, keeper, there = secrets("a", "b")
    asyncio.run(vms.look(0.0))
    gone = there.copy()
    there.clear()
    asyncio.run(vms.look(1.0))
    there.append(gone[1])
    asyncio.run(vms.look(50.0))
    there.clear()
    asyncio.run(vms.look(62.0))
    assert keeper.forgotten == ["a"]


def test_who_went_while_no_operator_looked_is_forgotten_too() -> None:
    vms, keeper, _ = secrets("a")
    keeper.known = {"a", "gone"}
    for now in (0.0, 59.0):
        asyncio.run(vms.look(now))
    assert keeper.forgotten == []
    asyncio.run(vms.look(61.0))
    assert keeper.forgotten == ["gone"]


def test_an_api_server_that_does_not_answer_ends_nothing() -> None:
    vms, keeper, _ = secrets("a", "b")

    def silent() -> None:
        raise MaxRetryError(None, "/")  # type: ignore[arg-type]

    keeper.then["a"] = silent
    asyncio.run(vms.look(0.0))
    assert sorted(keeper.ensured) == ["a", "b"]
    asyncio.run(vms.look(11.0))
    assert sorted(keeper.ensured) == ["a", "a", "b"]


def test_a_certificate_that_cannot_be_made_is_tried_less_and_less_often() -> None:
    vms, keeper, _ = secrets("full")
    tried = []

    def refuse() -> None:
        tried.append(now)
        raise ApiException(status=403, reason="exceeded quota")

    keeper.then["full"] = refuse
    for now in range(2000):
        asyncio.run(vms.look(float(now)))
    assert tried == [0, 10, 30, 70, 150, 310, 630, 950, 1270, 1590, 1910]
    keeper.then.clear()
    asyncio.run(vms.look(2230.0))
    keeper.then["full"] = refuse
    for now in (5830, 5839, 5840):
        asyncio.run(vms.look(float(now)))
    assert tried[-2:] == [5830, 5840]
