"""Who has not heard of the API server for long says nothing: what it knows may have changed."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, cast

import msgspec
from aiohttp.test_utils import TestClient, TestServer
from elbowroom.guard.server import Guard
from support.kept import binding, hold, pod, review

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from elbowroom.authority.certificates import KeyPair
    from elbowroom.cluster.client import Api
    from elbowroom.guard.certificate import Source

HELD = review("pods", "binding", binding())


class Server:
    """An API server with one hold and one pod, which says nothing after that."""

    async def read(self, path: str, **_: str) -> bytes:
        if path.endswith("/pods/thief"):
            return json.dumps(pod()).encode()
        items = [msgspec.to_builtins(hold())]
        return msgspec.json.encode({"metadata": {"resourceVersion": "5"}, "items": items})

    async def create(self, *_: object) -> object:
        return {"status": {"userInfo": {"username": "op"}}}

    async def watch(self, _: str, **__: str) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def close(self) -> None:
        pass


class NoSource:
    async def current(self) -> KeyPair:
        raise AssertionError("nobody connects by TLS here")


async def answers(silence: float) -> tuple[int, int, str]:
    """Return the status of /readyz and that of a binding, with what is said, so long after the last word."""
    guard = Guard(cast("Api", Server()), cast("Source", NoSource()), 0, frozenset())
    watch = asyncio.create_task(guard.holds.run())
    await guard.know_myself()
    await asyncio.wait_for(guard.holds.synced.wait(), 5)
    guard.holds.heard_at = time.monotonic() - silence
    async with TestClient(TestServer(guard.application())) as client:
        ready, asked = await client.get("/readyz"), await client.post("/admit", data=HELD)
        told = ready.status, asked.status, await asked.text()
    watch.cancel()
    return told


def test_a_guard_that_hears_of_the_api_server_refuses_what_would_take_held_room() -> None:
    ready, asked, text = asyncio.run(answers(silence=80))
    assert (ready, asked) == (200, 200)
    assert not json.loads(text)["response"]["allowed"]


def test_a_guard_that_has_heard_nothing_for_long_is_not_ready_and_gives_no_answer() -> None:
    ready, asked, text = asyncio.run(answers(silence=91))
    assert (ready, asked) == (503, 503)
    assert text == "the API server was last heard of 91 s ago"


def test_a_guard_that_has_read_nothing_yet_gives_no_answer() -> None:
    async def early() -> tuple[int, str]:
        guard = Guard(cast("Api", Server()), cast("Source", NoSource()), 0, frozenset())
        async with TestClient(TestServer(guard.application())) as client:
            asked = await client.post("/admit", data=HELD)
            return asked.status, await asked.text()

    assert asyncio.run(early()) == (503, "the holds have not been read yet")
