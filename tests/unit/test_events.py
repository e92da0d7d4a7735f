"""What is said again is counted, and said anew after a while."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from elbowroom.cluster.client import Api, NotFoundError
from elbowroom.cluster.events import Recorder

BODY = {
    "apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMScaleRequest",
    "metadata": {"name": "grow", "namespace": "shop", "uid": "u"},
}  # fmt: skip


class Kept:
    """Stands in for the API server: it remembers what it was sent."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.changed: list[Any] = []
        self.gone = False

    async def create(self, _path: str, body: Any) -> None:
        self.made.append(body)

    async def patch(self, path: str, body: Any, _kind: str) -> None:
        if self.gone:
            raise NotFoundError(404, "gone")
        self.changed.append((path.rpartition("/")[2], body["series"]["count"]))


def test_what_happens_again_is_counted_in_the_first_event() -> None:
    api, now = Kept(), [1000.0]
    recorder = Recorder(cast("Api", api), "me", lambda: now[0])

    def say(message: str, after: float) -> None:
        now[0] += after
        asyncio.run(recorder.post(BODY, "Waiting", message))

    say("for web", 0)
    say("for web", 5)
    say("for api", 1)
    say("for web", 500)
    assert [event["note"] for event in api.made] == ["for web", "for api"]
    name = api.made[0]["metadata"]["name"]
    assert api.changed == [(name, 2), (name, 3)]
    say("for web", 601)  # it is news again
    api.gone = True
    say("for web", 1)  # and what nobody has kept is said anew
    assert [event["note"] for event in api.made] == ["for web", "for api", "for web", "for web"]
