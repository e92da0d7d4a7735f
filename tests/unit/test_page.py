"""What the page draws, and to whom it is served."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession
from elbowroom.cluster.view import View
from elbowroom.config import PageSettings
from elbowroom.core.room import Room
from elbowroom.core.world import Transfer, TransferState
from elbowroom.page import server
from elbowroom.page.picture import NODES, PODS, draw, empty
from elbowroom.page.server import PagePortError, PageServer
from support.worlds import DB, NOW, RECEIVER, WEB, hold, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Json = dict[str, Any]


MIGRATION = {
    "apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMMigration",
    "metadata": {
        "name": "web-r1-1", "namespace": "shop", "uid": "m1", "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:16:32Z",
    },
    "spec": {
        "vm": "web", "receiver": "web-r1-1", "request": {"namespace": "shop", "name": "grow-db", "uid": "r1"},
        "pod": {"namespace": "shop", "name": "web", "uid": "web"},
    },
    "status": {
        "phase": "Transferring", "reason": "Transferring", "attempt": 1001, "source": {"name": "web", "uid": "web", "node": "n1"},
        "receiver": {"name": "web-r1-1", "uid": "web-r1-1", "node": "n2"},
    },
}  # fmt: skip


def view(*, cores: int = 4) -> View:
    """Return a full node with db, which wants to grow, and web, which moves to n2 for that."""
    found = View(None)
    for name in ("n1", "n2"):
        found.store.put_node(name, Room(cores * 1000, 1 << 33), ready=True, takes_pods=True, tainted=False)
    for item in (DB, WEB, RECEIVER):
        found.store.put_pod(item)
    found.store.put_hold(hold())
    found.put_migration(MIGRATION)
    found.store.put_transfer("m1", Transfer(TransferState.COPYING, 43))
    return found


def body(uid: str, name: str, phase: str, **status: Any) -> Json:
    return {
        "apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMScaleRequest",
        "metadata": {
            "name": name, "namespace": "shop", "uid": uid, "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:16:30Z",
        },
        "spec": {"vm": "db", "resources": {"cpu": "4"}},
        "status": {"phase": phase, "reason": "Done", **status},
    }  # fmt: skip


# The picture


def test_who_takes_part_in_what_is_seen() -> None:
    seen = draw(view(), NOW)
    assert seen["nodes"] == ["n1", "n2"]
    roles = {item["id"]: item["role"] for name in seen["nodes"] for item in seen[f"node/{name}"]["pods"]}
    assert roles == {"db": "grows", "web": "leaves", "web-r1-1": "receives"}
    assert seen["node/n1"]["cpu"] == {"used": 4000, "held": 2000, "free": -2000, "allocatable": 4000}
    assert seen["node/n1"]["heldFor"] == ["shop/db"]
    (move,) = seen["moves"]
    assert (move["from"], move["to"], move["percent"]) == ("web", "web-r1-1", 43)


def test_requests_are_told_of_those_under_way_first_and_then_the_newest() -> None:
    known = view()
    known.put_request(body("old", "grow-old", "Succeeded", finishedAt="1970-01-01T00:10:00Z"))
    known.put_request(body("new", "grow-new", "Failed", finishedAt="1970-01-01T00:12:00Z"))
    known.put_request(body("r1", "grow-db", "Moving"))
    seen = draw(known, NOW)
    assert seen["requests"] == ["r1", "new", "old"]
    told = seen["request/r1"]
    assert (told["over"], told["done"]) == (False, False)
    assert told["wanted"].startswith("VM db in shop shall have 4 cpu. Asked 10 s ago; it gives up in 9 min.")
    assert told["toDo"]
    assert [seen[f"request/{uid}"]["done"] for uid in ("new", "old")] == [False, True]


def test_of_many_nodes_those_are_drawn_where_something_goes_on_and_then_the_fullest() -> None:
    known = view()
    for number in range(NODES + 20):
        name = f"many-{number:03}"
        known.store.put_node(name, Room(100_000, 1 << 33), ready=True, takes_pods=True, tainted=False)
        known.store.put_pod(pod(f"p{number}", 1 + number % 90, name))
    seen = draw(known, NOW)
    assert len(seen["nodes"]) == NODES
    assert {"n1", "n2"} < {*seen["nodes"]}
    assert seen["cluster"] == {"nodes": NODES + 22, "leftOut": 22, "guarded": None, "told": ""}
    assert "many-059" in seen["nodes"]
    assert "many-000" not in seen["nodes"]
    assert draw(known, NOW, "MANY-000")["nodes"] == ["many-000"]
    assert draw(known, NOW, "shop/p7")["nodes"] == ["many-007"]
    assert draw(known, NOW, "web")["nodes"] == ["n1", "n2"]
    assert draw(known, NOW, "nothing")["nodes"] == []


def test_small_pods_are_drawn_as_one_and_those_that_take_part_never() -> None:
    known = view(cores=1000)
    for number in range(PODS + 30):
        known.store.put_pod(pod(f"large-{number}", 11, "n1"))
    known.store.put_pod(pod("tiny", 0, "n1", size=Room(5, 5)))
    drawn = draw(known, NOW)["node/n1"]
    assert len(drawn["pods"]) == PODS
    assert {"db", "web"} < {item["id"] for item in drawn["pods"]}
    assert drawn["small"] == {"count": 33, "cpu": 32 * 11_000 + 5, "memory": 5}


# The server


@asynccontextmanager
async def served(picture: Callable[[str], Json], **settings: Any) -> AsyncIterator[tuple[ClientSession, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with PageServer(PageSettings(port=port, **settings), picture), ClientSession() as session:
        yield session, f"http://127.0.0.1:{port}"


async def event(answer: Any) -> Json:
    while True:
        line = (await asyncio.wait_for(answer.content.readline(), 5)).decode()
        if line.startswith("data: "):
            found: Json = json.loads(line.removeprefix("data: "))
            return found


def test_only_what_has_changed_is_sent() -> None:
    known = view()

    async def look() -> None:
        async with (
            served(lambda find: draw(known, NOW, find)) as (session, url),
            session.get(f"{url}/news") as news,
        ):
            assert news.headers["Content-Type"] == "text/event-stream"
            assert {*await event(news)} == {"cluster", "nodes", "node/n1", "node/n2", "moves", "requests"}
            known.store.put_transfer("m1", Transfer(TransferState.COPYING, 60))
            changed = await event(news)
            assert {*changed} == {"moves"}
            assert changed["moves"][0]["percent"] == 60

    asyncio.run(look())


def test_nothing_can_be_done_and_nothing_else_be_had_there() -> None:
    async def look() -> None:
        async with served(lambda _: empty("It stands by.")) as (session, url):
            for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
                async with session.get(url + path) as answer:
                    assert (answer.status, answer.content_type) == (200, kind)
                    assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
                    assert "http://" not in (await answer.text()).replace("http://www.w3.org/", "")
                async with session.post(url + path) as answer:
                    assert answer.status == 405
            for path in ("/static/", "/picture.py", "/../server.py", "/metrics"):
                async with session.get(url + path) as answer:
                    assert answer.status == 404
            async with session.get(f"{url}/news?find={'x' * 64}") as answer:
                assert (answer.status, await answer.text()) == (400, "find: has more than 63 characters\n")
            async with session.get(f"{url}/news") as answer:
                assert (await event(answer))["cluster"]["told"] == "It stands by."

    asyncio.run(look())


def test_a_strangers_name_for_this_address_is_refused() -> None:
    async def look() -> dict[str, int]:
        found = {}
        async with served(lambda _: empty(""), hosts=["rooms.example.com"]) as (session, url):
            for host in (
                "localhost",
                "localhost:9",
                "[::1]:9",
                "rooms.example.com",
                "evil.example.com",
                "localhost.evil",
            ):
                async with session.get(url, headers={"Host": host}) as answer:
                    found[host] = answer.status
                    if answer.status == 403:
                        assert await answer.text() == (
                            f"This page is not known as {host}. If it shall be, add that to page.hosts.\n"
                        )
        return found

    assert asyncio.run(look()) == {
        "localhost": 200, "localhost:9": 200, "[::1]:9": 200, "rooms.example.com": 200, "evil.example.com": 403,
        "localhost.evil": 403,
    }  # fmt: skip


def test_many_viewers_cost_one_picture_and_too_many_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "VIEWERS", 3)
    monkeypatch.setattr(server, "_PERIOD", 60.0)  # nobody is so slow that a second picture is due
    drawn: list[str] = []

    def picture(find: str) -> Json:
        drawn.append(find)
        return empty("")

    async def look() -> None:
        async with served(picture) as (session, url):
            viewers = [await session.get(f"{url}/news") for _ in range(3)]
            for viewer in viewers:
                await event(viewer)
            assert len(drawn) == 1
            async with session.get(f"{url}/news") as answer:
                assert answer.status == 503
                assert "3 others look at this page already" in await answer.text()
            for viewer in viewers:
                viewer.close()

    asyncio.run(look())


def test_an_address_that_is_taken_is_named() -> None:
    async def look() -> None:
        async with served(lambda _: empty("")) as (_, url):
            port = int(url.rpartition(":")[2])
            with pytest.raises(PagePortError, match=f"page: 127.0.0.1:{port} cannot be listened on"):
                async with PageServer(PageSettings(port=port), lambda _: empty("")):
                    pass

    asyncio.run(look())


def test_without_settings_there_is_no_page() -> None:
    async def look() -> None:
        async with PageServer(None, lambda _: empty("")) as page:
            assert not page.addresses

    asyncio.run(look())
