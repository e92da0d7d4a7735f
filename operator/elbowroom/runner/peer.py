"""The two things that a source says to its receiver: run the guest; you are not needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import aiohttp
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from .messages import OfAttempt
from .tls import CertificateError

if TYPE_CHECKING:
    from pathlib import Path

    from .messages import Destination
    from .tls import Files, Identity

log = logging.getLogger(__name__)
_CALL_SECONDS = 5.0
_SERVER_ERROR = 500
_OK = 200


class _UnreachableError(Exception):
    """No answer, or "not yet": worth another try."""


class Peer:
    """Calls from one runner of a VM to the other, with the VM's own certificate."""

    def __init__(self, files: Files, identity: Identity, credentials: Path) -> None:
        """Say who we are."""
        self._files, self._identity, self._credentials = files, identity, credentials
        self._session: aiohttp.ClientSession | None = None
        self._version: tuple[int, ...] = ()

    def credentials(self) -> str:
        """Return a folder for QEMU with the certificates as they are now."""
        self._files.for_qemu(self._credentials)
        return str(self._credentials)

    async def warm_up(self, to: Destination) -> None:
        """Have a connection ready, so that the guest does not wait for a handshake."""
        try:
            await self._call(to, "GET", "/v1/ping")
        except _UnreachableError as error:
            log.warning("the receiver's runner does not answer yet", extra={"error": str(error)})

    async def release(self, to: Destination, attempt: int, *, within: float) -> bool:
        """Have the receiver run the guest. True once it says that it does."""
        retries = AsyncRetrying(
            retry=retry_if_exception_type(_UnreachableError),
            stop=stop_after_delay(within),
            wait=wait_exponential_jitter(multiplier=0.05, max=5, jitter=0.1),
        )
        try:
            async for trial in retries:
                with trial:
                    status, text = await self._call(to, "POST", "/v1/release", attempt)
        except RetryError:
            log.error("the receiver could not be told to run the guest", extra={"attempt": attempt})  # noqa: TRY400
            return False
        if status != _OK:
            log.error("the receiver refuses to run the guest", extra={"attempt": attempt, "answer": text})
        return status == _OK

    async def quit(self, to: Destination, attempt: int) -> None:
        """Tell a receiver that it will not be needed. It also finds out by itself, only later."""
        try:
            await self._call(to, "POST", "/v1/quit", attempt)
        except _UnreachableError as error:
            log.info("the receiver was not told to end", extra={"attempt": attempt, "error": str(error)})

    async def _call(self, to: Destination, method: str, path: str, attempt: int | None = None) -> tuple[int, str]:
        session = await self._current_session()
        host = f"[{to.host}]" if ":" in to.host else to.host
        body = None if attempt is None else OfAttempt(attempt=attempt).model_dump(by_alias=True)
        try:
            async with session.request(
                method, f"https://{host}:{to.api_port}{path}", json=body, server_hostname=self._identity.host
            ) as answer:
                text = await answer.text()
                if answer.status >= _SERVER_ERROR:
                    raise _UnreachableError(text)
                return answer.status, text
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _UnreachableError(f"{type(error).__name__}: {error}") from error

    async def _current_session(self) -> aiohttp.ClientSession:
        """Return a session that shows the certificate as it is now: attempts can be days apart."""
        try:
            version = self._files.version()
            if self._session is None or version != self._version:
                await self.close()
                connector = aiohttp.TCPConnector(ssl=self._files.client(), keepalive_timeout=120)
                timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
                self._session, self._version = aiohttp.ClientSession(connector=connector, timeout=timeout), version
        except (CertificateError, OSError) as error:
            raise _UnreachableError(str(error)) from error
        return self._session

    async def close(self) -> None:
        """Give the connections back."""
        if self._session is not None:
            await self._session.close()
            self._session = None
