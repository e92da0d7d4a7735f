"""Certificates for VMs: each one's Secret is there before its pod needs it, valid for long enough, and gone with it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from .keeper import KeeperError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from elbowroom.runner.tls import Identity

    from .keeper import Keeper

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.5
_AT_ONCE: Final = 16
_AGAIN_SECONDS: Final = 3600.0
_AFTER_FAILURE: Final = 10.0
_AFTER_MANY: Final = 320.0
"""In a namespace whose quota is full, for instance, it is not tried as often."""
_FORGET_AFTER: Final = 60.0


class VmSecrets:
    """Keeps the Secrets of all VMs that there are."""

    def __init__(self, keeper: Keeper, identities: Callable[[], Iterable[Identity]]) -> None:
        """Take who makes them, and who knows which VMs there are, each once, the latest last."""
        self._keeper, self._identities = keeper, identities
        self._due: dict[Identity, float] = {}
        self._missed: dict[Identity, float] = {}
        self._rests: dict[Identity, float] = {}
        """For how long those whose certificate cannot be made are left alone the next time."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self, now: float) -> None:
        """See to those that are new or due, and forget those that have been gone for a while."""
        # The first look at a large cluster is for thousands of them. Who comes meanwhile does not wait for them all.
        while batch := self._latest_due(now):
            done = await asyncio.gather(*(self._try(self._keeper.ensure_vm, identity) for identity in batch))
            for identity, made in zip(batch, done, strict=True):
                self._due[identity] = now + (_AGAIN_SECONDS if made else self._rests.get(identity, _AFTER_FAILURE))
                if made:
                    self._rests.pop(identity, None)
                else:
                    self._rests[identity] = min(_AFTER_MANY, 2 * self._rests.get(identity, _AFTER_FAILURE))
        there = set(self._identities())
        for identity in there:
            self._missed.pop(identity, None)
        for identity in (self._due.keys() | await self._given()) - there:
            if now - self._missed.setdefault(identity, now) > _FORGET_AFTER and await self._try(
                self._keeper.forget_vm, identity
            ):
                for known in (self._due, self._rests, self._missed):
                    known.pop(identity, None)

    async def _given(self) -> frozenset[Identity]:
        """Return who has a certificate: those who went while no operator looked are in the records only."""
        try:
            return await self._keeper.given()
        except (ApiException, HTTPError) as error:
            _log.warning("the records of certificates: %s", error)
            return frozenset()

    def _latest_due(self, now: float) -> list[Identity]:
        due = [identity for identity in self._identities() if self._due.get(identity, 0.0) <= now]
        return due[-_AT_ONCE:]

    @staticmethod
    async def _try(work: Callable[[Identity], object], identity: Identity) -> bool:
        try:
            await work(identity)  # type: ignore[misc]
        except (ApiException, HTTPError, KeeperError) as error:
            _log.warning("the certificate of %s/%s: %s", identity.namespace, identity.name, error)
            return False
        return True
