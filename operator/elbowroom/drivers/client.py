"""Calls to runners, and the one place where they are retried.

Every call of the API is idempotent, so a call that was lost on the way, or whose answer was, is simply made again.
What is refused is not. Each call ends after a few tries; the reconciler comes back later anyway.

A VM's owner chooses what runs in its pod, and has its certificate: whatever answers here may be hostile. It is read up
to a limit, sent nowhere else, and what is none of our messages is no answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from pydantic import ValidationError
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential_jitter,
)

from elbowroom.runner.messages import API_PORT, TRACE, Message, Refusal, Status

from .interface import RefusedError, UnreachableError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from elbowroom.runner.tls import Identity

_OK = 200
_TRY_AGAIN = frozenset((502, 503, 504))
_TRIES = 4
_SECONDS = 20.0
_CONNECT_SECONDS = 3.0
_LARGEST = 256 << 10
"""Bytes of an answer; a status has some thousand."""


class RunnerClient:
    """Talks to runners as the operator."""

    def __init__(self, context: Callable[[], ssl.SSLContext], *, tries: int = _TRIES) -> None:
        """Take a source of contexts: certificates are renewed while the operator runs."""
        self._context, self._tries = context, tries
        self._session: aiohttp.ClientSession | None = None

    async def status(self, address: str, identity: Identity, *, after: int = -1, wait: float = 0.0) -> Status:
        """Return what a runner knows; with `wait`, as soon as it is news after a revision."""
        path = f"/v1/status?after={after}&wait={wait:g}"
        return _status(identity, await self._call(address, identity, "GET", path, None, seconds=_SECONDS + wait))

    async def call(  # noqa: PLR0913
        self, address: str, identity: Identity, name: str, message: Message,
        *, seconds: float = _SECONDS, trace: str = "",
    ) -> Status | None:  # fmt: skip
        """Make a call that changes something. Its answer is the status afterwards, where it has one."""
        text = await self._call(address, identity, "POST", f"/v1/{name}", message, seconds=seconds, trace=trace)
        return None if text.strip() == b"{}" else _status(identity, text)

    async def _call(  # noqa: PLR0913
        self, address: str, identity: Identity, method: str, path: str, message: Message | None,
        *, seconds: float, trace: str = "",
    ) -> bytes:  # fmt: skip
        retries = AsyncRetrying(
            retry=retry_if_exception_type(UnreachableError),
            stop=stop_after_attempt(self._tries) | stop_after_delay(seconds),
            wait=wait_exponential_jitter(multiplier=0.1, max=2, jitter=0.1),
            reraise=True,
        )
        async for trial in retries:
            with trial:
                return await self._once(address, identity, method, path, message, seconds, trace)
        raise AssertionError("tenacity ends with an answer or an error")

    async def _once(  # noqa: PLR0913, PLR0917
        self, address: str, identity: Identity, method: str, path: str, message: Message | None, seconds: float,
        trace: str,
    ) -> bytes:  # fmt: skip
        if self._session is None:
            # Those who do not answer keep nobody else waiting: there is no limit in all, and a low one for each.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, limit_per_host=8))
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.request(
                method, f"https://{host}:{API_PORT}{path}", ssl=self._context(), server_hostname=identity.host,
                data=None if message is None else message.model_dump_json(by_alias=True),
                headers={TRACE: trace} if trace else None,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS), allow_redirects=False,
            ) as answer:  # fmt: skip
                text = await _read(answer.content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = str(error) or type(error).__name__
            raise UnreachableError(
                f"the runner of {identity.namespace}/{identity.name} at {address}: {told}"
            ) from error
        if answer.status == _OK:
            return text
        reason, told = _refusal(text, answer.status)
        if answer.status in _TRY_AGAIN:
            raise UnreachableError(told)
        raise RefusedError(reason, told)

    async def close(self) -> None:
        """Give the connections back."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _read(content: aiohttp.StreamReader) -> bytes:
    found = bytearray()
    async for part in content.iter_any():
        found += part
        if len(found) > _LARGEST:
            raise aiohttp.ClientPayloadError(f"the answer has more than {_LARGEST} bytes")
    return bytes(found)


def _status(identity: Identity, text: bytes) -> Status:
    try:
        return Status.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UnreachableError(
            f"the runner of {identity.namespace}/{identity.name} answers with what is no status: {told}"
        ) from error


def _refusal(text: bytes, status: int) -> tuple[str, str]:
    try:
        refusal = Refusal.model_validate_json(text)
    except ValidationError:
        return "Unreadable", f"the runner answered {status} without a reason"
    return refusal.reason, refusal.message
