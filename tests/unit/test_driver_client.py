"""Runners that somebody hostile has written: they have the VM's certificate, and answer what they like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from elbowroom.authority.certificates import Authority, issue_operator, issue_vm, new_authority_pair
from elbowroom.authority.keeper import client_context
from elbowroom.core.world import TransferState
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.interface import RefusedError, UnreachableError, VirtualMachine
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.runner.messages import API_PORT
from elbowroom.runner.tls import Files, Identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW = datetime.now(UTC)
AUTHORITY = Authority((new_authority_pair(NOW),))
DB = Identity("shop", "db")
ADDRESS, ELSEWHERE = "127.71.0.1", "127.71.0.2"
VM = VirtualMachine(
    name="db", namespace="shop", pod="db", uid="u", node="n1", address=ADDRESS, movable=True, why_not_movable="", attempt=0,
)  # fmt: skip
STATUS: dict[str, Any] = {
    "revision": 1, "vm": "db", "namespace": "shop", "runner": "1", "qemu": "10.0.2", "state": "Running",
}  # fmt: skip
OUTGOING: dict[str, Any] = {
    "attempt": 3, "phase": "Copying", "committed": False, "to": {"host": "10.0.0.1"}, "limits": {},
}  # fmt: skip
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def saying(body: str | bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body.encode() if isinstance(body, str) else body, status=status)

    return answer


def sending(**progress: Any) -> Answer:
    return saying(json.dumps({**STATUS, "outgoing": {**OUTGOING, "progress": progress}}))


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(1 << 14):  # a gigabyte
        await response.write(b" " * 65536)
        await asyncio.sleep(0)
    return response


async def astray(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(f"https://{ELSEWHERE}:{API_PORT}/v1/status")


@asynccontextmanager
async def served(folder: Path, answer: Answer, address: str = ADDRESS) -> AsyncIterator[list[str]]:
    """Answer everything in this way, and tell what was asked for."""
    pair = issue_vm(AUTHORITY, DB, NOW)
    for name, content in (("ca.crt", AUTHORITY.bundle()), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / name).write_bytes(content)
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, address, API_PORT, ssl_context=Files(folder).server()).start()
    try:
        yield asked
    finally:
        await runner.cleanup()


def against(folder: Path, answer: Answer, what: Callable[[QemuDriver], Awaitable[Any]]) -> Any:
    """Do something with such a runner."""
    context = client_context(issue_operator(AUTHORITY, NOW), AUTHORITY)
    folder.joinpath("elsewhere").mkdir()

    async def run() -> Any:
        client = RunnerClient(lambda: context, tries=1)
        try:
            async with (
                served(folder, answer),
                served(folder / "elsewhere", saying(json.dumps(STATUS)), ELSEWHERE) as astray_to,
                asyncio.timeout(20),
            ):
                found = await what(QemuDriver(client))
            assert not astray_to, "it was sent elsewhere, and went"
            return found
        finally:
            await client.close()

    return asyncio.run(run())


HOSTILE: dict[str, Answer] = {
    "no JSON": saying("<html>"),
    "no text": saying(b"\xff\xfe\x00"),
    "another thing": saying("[]"),
    "something else in it": saying(json.dumps({**STATUS, "secret": 1})),
    "without an end": endless,
    "somewhere else": astray,
    "refused": saying(json.dumps({"reason": "Forbidden", "message": "no"}), 403),
    "refused, without a reason": saying("no", 409),
    "an error": saying("", 500),
    "more than all": sending(percent=1e300),
    "less than nothing": sending(percent=-1),
    "no number": saying(json.dumps({**STATUS, "outgoing": {**OUTGOING, "progress": {"percent": float("nan")}}})),
    "a number without an end": saying(json.dumps({**STATUS, "outgoing": {**OUTGOING, "progress": {"bytesPerSecond": float("inf")}}})),
    "more than an integer": sending(transferredBytes=1 << 80),
    "a size that is none": saying(json.dumps({**STATUS, "size": {"cpus": -1, "memory": 1 << 90}})),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
def test_who_answers_what_is_no_answer_is_silent(how: str, tmp_path: Path) -> None:
    """What is decided about a move never waits for its runners to be reasonable."""
    told = against(tmp_path, HOSTILE[how], lambda driver: driver.observe(VM, None, 3))
    assert told.state is TransferState.UNKNOWN


@pytest.mark.parametrize("how", HOSTILE)
def test_a_guest_whose_size_cannot_be_known_is_an_error_of_ours(how: str, tmp_path: Path) -> None:
    def ask(driver: QemuDriver) -> Awaitable[Any]:
        return driver.guest(VM)

    with pytest.raises((UnreachableError, RefusedError)) as error:
        against(tmp_path, HOSTILE[how], ask)
    assert "\n" not in str(error.value)


def test_an_honest_one_is_understood(tmp_path: Path) -> None:
    told = against(tmp_path, sending(percent=40.5, transferredBytes=7), lambda driver: driver.observe(VM, None, 3))
    assert (told.state, told.percent, told.transferred_bytes) == (TransferState.COPYING, 40.5, 7)
