"""Who of several operators acts: a Lease, held by one.

Nothing depends on it for safety: every write has its precondition. It keeps two operators from getting in each other's
way. One that cannot renew in time ends its process, by the monotonic clock, before another one may begin.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from elbowroom.cluster.client import ApiError, ConflictError, NotFoundError
from elbowroom.cluster.kinds import stamp

if TYPE_CHECKING:
    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_LEASE_SECONDS: Final = 10
_RENEW_WITHIN: Final = 7.0
_PERIOD: Final = 2.0


class LostError(Exception):
    """Somebody else may lead now."""


class Leader:
    """One candidate."""

    def __init__(self, api: Api, namespace: str, identity: str, name: str = "elbowroom-operator") -> None:
        """Say who, and for which Lease."""
        self._api, self._identity, self._name = api, identity, name
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: Json | None = None
        self._seen: tuple[str, float] = ("", 0.0)
        self.holder = ""
        """Who led when we last looked."""
        self.leads = False
        self._renewed = -_RENEW_WITHIN
        self.heard_at = time.monotonic()
        """When the Lease was last seen, by the monotonic clock."""

    @property
    def sure(self) -> bool:
        """Tell whether nobody else can lead yet: by the monotonic clock, also after this process stood still."""
        return self.leads and time.monotonic() - self._renewed < _RENEW_WITHIN

    async def acquire(self) -> None:
        """Wait until the Lease is ours. A holder is given its whole time from when we have last seen it move."""
        while True:
            try:
                began = time.monotonic()
                if await self._take():
                    self.leads, self._renewed = True, began
                    _log.info("leading as %s", self._identity)
                    return
            except ApiError as error:
                _log.warning("the lease cannot be read or written: %s", error)
            await asyncio.sleep(_PERIOD / 2)

    async def keep(self) -> None:
        """Renew it until it cannot be: then raise LostError."""
        while True:
            await asyncio.sleep(_PERIOD)
            began = time.monotonic()
            try:
                async with asyncio.timeout(_RENEW_WITHIN - (began - self._renewed)):
                    await self._renew()
                self._renewed = began  # from when it was asked for: the Lease says no later time
            except (ApiError, TimeoutError) as error:
                if time.monotonic() - self._renewed >= _RENEW_WITHIN - _PERIOD:
                    raise LostError(f"the lease could not be renewed for {_RENEW_WITHIN:g} s: {error}") from error

    async def _renew(self) -> None:
        try:
            await self._write(self._lease)
        except ConflictError as error:
            found = await self._api.get(f"{self._folder}/{self._name}")
            if found.get("spec", {}).get("holderIdentity") != self._identity:
                raise LostError("somebody else has taken the lease") from error
            await self._write(found)  # written by ourselves, and the answer was lost: it has an earlier time

    async def release(self) -> None:
        """Let somebody else lead at once."""
        if self.leads and self._lease is not None:
            self.leads = False
            try:
                await self._write(self._lease, holder="")
            except ApiError as error:
                _log.info("the lease was not given back: %s", error)

    async def _take(self) -> bool:
        try:
            found = await self._api.get(f"{self._folder}/{self._name}")
        except NotFoundError:
            found = None
        self.heard_at = time.monotonic()
        if found is not None:
            spec: Json = found.get("spec", {})
            self.holder = holder = spec.get("holderIdentity", "")
            moved = f"{holder} {spec.get('renewTime', '')}"
            if self._seen[0] != moved:
                self._seen = (moved, time.monotonic())
            over = time.monotonic() - self._seen[1] > float(spec.get("leaseDurationSeconds", _LEASE_SECONDS))
            if holder not in ("", self._identity) and not over:
                return False
        try:
            await self._write(found)
        except ConflictError:
            return False
        return True

    async def _write(self, found: Json | None, holder: str | None = None) -> None:
        now = stamp(time.time())
        spec: Json = dict((found or {}).get("spec", {}))
        mine = self._identity if holder is None else holder
        if spec.get("holderIdentity") != mine:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions", -1)) + 1}
        spec |= {"holderIdentity": mine, "renewTime": now, "leaseDurationSeconds": _LEASE_SECONDS}
        meta = {"name": self._name, **({"resourceVersion": found["metadata"]["resourceVersion"]} if found else {})}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        if found is None:
            self._lease = await self._api.create(self._folder, body)
        else:
            self._lease = await self._api.replace(f"{self._folder}/{self._name}", body)
