"""Two operators, of which one acts: who leads when the other one is killed, asked to end, or stopped for a while."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from support.namespace import Namespace
from support.operators import SYSTEM
from support.schedulers import operator
from support.vms import Vms, new_authority
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.inside import Inside
    from support.testbed import Testbed

PORTS = {"first": 9101, "second": 9102}


@pytest.fixture(scope="module")
def cluster(unoperated: Testbed) -> Testbed:
    return unoperated


class Pair:
    """What is seen of the two from outside."""

    def __init__(self, testbed: Testbed, standing: Inside) -> None:
        self._testbed = testbed
        self._vms = Vms(Namespace(testbed, SYSTEM), standing, new_authority())

    def holder(self) -> str:
        return self._testbed.kubectl(
            "-n",
            SYSTEM,
            "get",
            "lease",
            "elbowroom-operator",
            "--ignore-not-found",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        )

    def until_leads(self, name: str, within: float) -> float:
        began = time.monotonic()
        until(f"{name} leads", lambda: self.holder() == name, within=within)
        until(f"{name} is ready", lambda: self.ready(name) == (200, "ok\n"), within=10)
        return time.monotonic() - began

    def ready(self, name: str) -> tuple[int, str]:
        return self._vms.ask(f"http://127.0.0.1:{PORTS[name]}/readyz", seconds=2)

    def alive(self, name: str) -> int:
        return self._vms.ask(f"http://127.0.0.1:{PORTS[name]}/healthz", seconds=2)[0]


def test_leadership_goes_over_soon_and_to_one_only(cluster: Testbed, standing: Inside, tmp_path: Path) -> None:
    pair = Pair(cluster, standing)
    with operator(cluster, tmp_path, "first", PORTS["first"]) as first:
        pair.until_leads("first", 20)
        with operator(cluster, tmp_path, "second", PORTS["second"]) as second:
            until("the second stands by", lambda: pair.ready("second") == (200, "ok\n"))
            assert pair.holder() == "first"
            first.signal(signal.SIGKILL)
            assert pair.until_leads("second", 15) < 15
            with operator(cluster, tmp_path, "first", PORTS["first"]) as again:
                until("the first stands by", lambda: pair.ready("first") == (200, "ok\n"))
                # Asked to end it says at once that it leads no more.
                second.signal(signal.SIGTERM)
                assert pair.until_leads("first", 5) < 5
                with operator(cluster, tmp_path, "second", PORTS["second"]):
                    until("the second stands by", lambda: pair.ready("second") == (200, "ok\n"))
                    # Stopped, as a machine is that sleeps: the other one leads; it wakes up, and ends.
                    again.signal(signal.SIGSTOP)
                    assert pair.until_leads("second", 15) < 15
                    again.signal(signal.SIGCONT)
                    assert again.until_ended(within=10) == 1
                    again.until_said("lease")
                    assert pair.holder() == "second"
                    assert pair.alive("second") == 200
