"""The operator is killed at every call that changes something: whoever comes after it goes on where it was."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
from support.ambush import Ambush, EveryWrite
from support.console import assert_whole, ticks
from support.inside import Inside
from support.namespace import condition, fresh_namespace
from support.operators import ACCOUNT, OVER, Mortal, Requests, told
from support.vms import Vms, new_authority
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.namespace import Json, Namespace
    from support.testbed import Testbed

T = TypeVar("T")
MOST_LIVES = 150


@pytest.mark.timeout(420)
def test_an_operator_that_is_killed_before_and_after_every_write_still_moves_and_grows(
    unoperated: Testbed, tmp_path: Path
) -> None:
    every = EveryWrite()
    with (
        Inside(unoperated) as inside,
        fresh_namespace(unoperated, "killed at every write") as space,
        Ambush(unoperated, ACCOUNT, every, inside) as ambush,
        Mortal(ambush, inside, tmp_path) as operators,
    ):
        vms, requests = Vms(space, inside, new_authority()), Requests(space)

        def alive(probe: Callable[[], T]) -> Callable[[], T]:
            def look() -> T:
                operators.live_on()
                assert operators.lives <= MOST_LIVES, operators.story()
                return probe()

            return look

        boot(vms, "db", "web")
        for name in ("db", "web"):
            until(f"{name} is ready", alive(partial(is_ready, space, name)), within=90)
        web = vms.driver.describe(space.pod("web"))
        vms.until_ticking(web)
        with vms.followed("web") as source:
            requests.grow("grow", vm="db", resources={"cpu": "4"}, deadline="15m")
            until("the request is over", alive(lambda: ended(requests.get("grow"))), within=300)
            found = requests.get("grow")
            assert found["status"]["phase"] == "Succeeded", f"{told(found)} {operators.story()}"
            receiver = vms.driver.describe(space.pod(found["status"]["plan"]["neighbours"][0]["receiver"]))
            vms.until_ticking(receiver)
            assert_whole([ticks(source()), vms.ticks(receiver)])
        assert len(every.killed_at) > 40, every.killed_at
        assert space.pod("db")["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "4"
        vms.close()


def boot(vms: Vms, *names: str) -> None:
    for name in names:
        described = vms.pod(name, node="node-1")
        described["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        vms.namespace.apply(described)


def is_ready(space: Namespace, name: str) -> bool:
    return condition(space.pod(name), "Ready").get("status") == "True"


def ended(found: Json) -> bool:
    return found.get("status", {}).get("phase") in OVER
