"""A copy of all objects of one kind, kept up to date by a watch.

After a gap the list is read anew, and what is not in it any more is dropped: nothing that was deleted in between is
remembered, which for room on a node would be fatal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from .client import ApiError, ExpiredError, UnavailableError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Api
    from .slim import Meta

_log = logging.getLogger(__name__)
_PAGE: Final = "500"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class Thing(Protocol):
    """Whatever has metadata."""

    @property
    def metadata(self) -> Meta:
        """Which object, and which state of it."""


T = TypeVar("T", bound=Thing)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: _ListMeta


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class Reflector(Generic[T]):
    """Reads and watches one kind. `put` is told of what there is, `drop` of the UID of what is gone."""

    def __init__(  # noqa: PLR0913
        self, api: Api, path: str, kind: type[T], put: Callable[[T], None], drop: Callable[[str], None],
        *, decode: Callable[[bytes | msgspec.Raw], T] | None = None,
    ) -> None:  # fmt: skip
        """Say what is watched, how it is decoded where its kind does not say so, and who is told."""
        self._api, self._path, self._put, self._drop = api, path, put, drop
        self._decode = decode or msgspec.json.Decoder(kind).decode
        self._event = msgspec.json.Decoder(_Event).decode
        self._known: set[str] = set()
        self.synced = asyncio.Event()
        self.heard_at = 0.0
        """When the API server was last heard of, by the monotonic clock."""

    async def run(self) -> None:
        """Watch until cancelled: each try ends, and the next one comes a little later."""
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._follow(await self._read_all())
            except ExpiredError:
                _log.info("watching %s: too old, reading all of them again", self._path)
            except ApiError as error:
                _log.warning("watching %s: %s", self._path, error)
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _read_all(self) -> str:
        """Read the whole list page by page, and return the version from which to watch."""
        seen: set[str] = set()
        query = {"limit": _PAGE}
        while True:
            page = msgspec.json.decode(await self._api.read(self._path, **query), type=_Page)
            for raw in page.items:
                item = self._decode(raw)
                seen.add(item.metadata.uid)
                self._keep(item)
            await asyncio.sleep(0)  # let others get on with their work between pages
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        for uid in self._known - seen:
            self._forget(uid)
        self.heard_at = time.monotonic()
        self.synced.set()
        return page.metadata.resource_version

    def _keep(self, item: T) -> None:
        self._known.add(item.metadata.uid)
        self._put(item)

    def _forget(self, uid: str) -> None:
        self._known.discard(uid)
        self._drop(uid)

    async def _follow(self, version: str) -> None:
        """Follow what happens, over as many watches as it takes."""
        while True:
            began, silent = time.monotonic(), True
            async for line in self._api.watch(self._path, resourceVersion=version):
                self.heard_at, silent = time.monotonic(), False
                version = self._take_in(self._event(line)) or version
            if silent and time.monotonic() - began < 1.0:
                raise UnavailableError(0, "the watch ended at once")

    def _take_in(self, event: _Event) -> str:
        match event.type:
            case "ADDED" | "MODIFIED":
                item = self._decode(event.object)
                self._keep(item)
                return item.metadata.resource_version
            case "DELETED":
                item = self._decode(event.object)
                self._forget(item.metadata.uid)
                return item.metadata.resource_version
            case "BOOKMARK":
                return msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
            case _:
                failure = msgspec.json.decode(event.object, type=_Failure)
                raise error_of(failure.code, failure.message) if failure.code else UnavailableError(0, failure.message)
