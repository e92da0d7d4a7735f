"""Calls to the API server, and the one place where they are retried.

Every call that changes something carries a precondition, or has a name that was derived: so one that was lost on the
way, or whose answer was, is simply made again. What is refused is not. Each call ends after a few tries.

    ApiError
    ├── UnavailableError   nobody answers, or not now: worth another try
    ├── ConflictError      somebody was faster: look again
    ├── NotFoundError      it is gone, or was never there
    ├── ExpiredError       that list or watch is too old: begin anew
    └── DeniedError        it is not allowed, or makes no sense: the message says why
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import msgspec
from kubernetes import client, config
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from elbowroom import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

Json = dict[str, Any]
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_TRIES: Final = 4
_SECONDS: Final = 15.0
_SILENCE: Final = 120.0
"""For how long a watch may say nothing: the API server sends a bookmark about every minute."""


class ApiError(Exception):
    """The API server did not do what it was asked."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the status for those who act on it."""
        super().__init__(message)
        self.status = status


class UnavailableError(ApiError):
    """Nobody answers, or not now."""


class ConflictError(ApiError):
    """Somebody was faster."""


class NotFoundError(ApiError):
    """It is gone."""


class ExpiredError(ApiError):
    """That list or watch is too old."""


class DeniedError(ApiError):
    """It is not allowed, or makes no sense."""


_KINDS: Final[dict[int, type[ApiError]]] = {404: NotFoundError, 409: ConflictError, 410: ExpiredError}
_WORTH_ANOTHER_TRY: Final = (401, 429)
"""A token that is just being replaced, and a server that is busy."""
_SERVER: Final = 500


def error_of(status: int, text: str) -> ApiError:
    """Return what an answer means."""
    try:
        message = str(msgspec.json.decode(text).get("message") or text)
    except (msgspec.DecodeError, AttributeError):
        message = text
    if status in _WORTH_ANOTHER_TRY or status >= _SERVER:
        return UnavailableError(status, message)
    return _KINDS.get(status, DeniedError)(status, message)


class Api:
    """One API server, in the name of one account."""

    def __init__(
        self, server: str, context: ssl.SSLContext | None, token: Callable[[], str] | None = None,
        *, proxy: str | None = None, server_name: str | None = None,
    ) -> None:  # fmt: skip
        """Take an address, what it is trusted by, and where a token is to be had; and the way there, if it is long."""
        self._server, self._context, self._token = server.rstrip("/"), context, token
        self._proxy, self._server_name = proxy, server_name
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """Find the API server as every client does: the pod's service account, or a kubeconfig."""
        found = _nothing_said()
        try:
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            return cls.from_kubeconfig()
        return cls._of(found)

    @classmethod
    def from_kubeconfig(cls, context: str | None = None) -> Self:
        """Find the API server as kubectl does."""
        found = _nothing_said()
        config.load_kube_config(context=context, client_configuration=found)  # type: ignore[no-untyped-call]
        return cls._of(found)

    @classmethod
    def _of(cls, found: client.Configuration) -> Self:
        context = None
        if found.host.startswith("https"):
            context = ssl.create_default_context(cafile=found.ssl_ca_cert)
            if found.cert_file:
                context.load_cert_chain(found.cert_file, found.key_file)
            if not found.verify_ssl:  # the kubeconfig says insecure-skip-tls-verify
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return cls(found.host, context, _token(found), proxy=found.proxy, server_name=found.tls_server_name)

    async def get(self, path: str, **query: str) -> Json:
        """Read something."""
        return _object(await self._call("GET", path, query=query))

    async def read(self, path: str, **query: str) -> bytes:
        """Read something that is decoded elsewhere."""
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: Json, **query: str) -> Json:
        """Make something. ConflictError: it is there."""
        return _object(await self._call("POST", path, body, query=query))

    async def replace(self, path: str, body: Json) -> Json:
        """Write something anew, as it was: the body says which state of it is replaced."""
        return _object(await self._call("PUT", path, body))

    async def patch(self, path: str, body: object, kind: str = JSON_PATCH, **query: str) -> Json:
        """Change something."""
        return _object(await self._call("PATCH", path, body, kind=kind, query=query))

    async def delete(self, path: str, *, uid: str, version: str = "") -> Json:
        """Remove this very object, and with a version only as it was; gracefully, as its owner would."""
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return _object(await self._call("DELETE", path, body))

    async def watch(self, path: str, **query: str) -> AsyncIterator[bytes]:
        """Return the lines of a watch, until the API server ends it or is silent for too long."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "290", **query}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENCE)
        try:
            async with self._open().get(
                self._server + path, params=query, headers=self._headers(), timeout=timeout, **self._way()
            ) as answer:
                if answer.status != 200:  # noqa: PLR2004
                    raise error_of(answer.status, await answer.text())
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(0, str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Give the connections back."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    def _way(self) -> dict[str, Any]:
        return {"ssl": self._context or True, "proxy": self._proxy, "server_hostname": self._server_name}

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token()} if self._token is not None else {}

    async def _call(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:  # fmt: skip
        retries = AsyncRetrying(
            retry=retry_if_exception_type(UnavailableError), stop=stop_after_attempt(_TRIES),
            wait=wait_exponential_jitter(multiplier=0.1, max=2, jitter=0.1), reraise=True,
        )  # fmt: skip
        async for trial in retries:
            with trial:
                if trial.retry_state.attempt_number > 1:
                    metrics.RETRIES.labels(method=method).inc()
                return await self._once(method, path, body, kind, query)
        raise AssertionError("tenacity ends with an answer or an error")

    async def _once(
        self, method: str, path: str, body: object, kind: str, query: Mapping[str, str] | None
    ) -> bytes:  # fmt: skip
        metrics.CALLS.labels(method=method).inc()
        try:
            async with self._open().request(
                method, self._server + path, params=query, **self._way(),
                headers={**self._headers(), "Content-Type": kind, "Accept": "application/json"},
                data=None if body is None else msgspec.json.encode(body),
                timeout=aiohttp.ClientTimeout(total=_SECONDS, sock_connect=5),
            ) as answer:  # fmt: skip
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(0, str(error) or type(error).__name__) from error
        if answer.status >= 400:  # noqa: PLR2004
            raise error_of(answer.status, text.decode(errors="replace"))
        return text


def _nothing_said() -> client.Configuration:
    found = client.Configuration()
    found.proxy = None  # the environment's is for other addresses: only a kubeconfig says how the API server is reached
    return found


def _object(text: bytes) -> Json:
    found: Json = msgspec.json.decode(text)
    return found


def _token(found: client.Configuration) -> Callable[[], str] | None:
    """Return where the token is to be had: the client knows when one has to be read or asked for anew."""

    def read() -> str | None:
        token: str | None = found.get_api_key_with_prefix("BearerToken", alias="authorization")
        return token

    return None if read() is None else lambda: read() or ""
