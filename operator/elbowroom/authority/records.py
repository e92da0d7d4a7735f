"""What certificates were given to VMs: which Secret, good until when, trusting whom. In ConfigMaps beside the operator.

One for each namespace with VMs, so that none grows too large. Without a record a VM simply gets another certificate.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubernetes.client.exceptions import ApiException

from elbowroom.runner.tls import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes import client

_LABEL: Final = "elbowroom.dev/certificates-of"
_PATIENCE: Final = (5, 15)
_NOT_FOUND, _CONFLICT = 404, 409


class Record(NamedTuple):
    """What is known of one VM's Secret."""

    uid: str
    renew_at: datetime
    trusted: str
    """Of whom its holder trusts: a hash."""


class Records:
    """All of them, read once and written through."""

    def __init__(self, core: client.CoreV1Api, namespace: str) -> None:
        """Say where they are kept."""
        self._core, self._namespace = core, namespace
        self._known: dict[str, dict[str, Record]] | None = None
        self._reading = asyncio.Lock()

    async def get(self, identity: Identity) -> Record | None:
        """Return what is known of a VM's certificate."""
        return (await self._all()).get(identity.namespace, {}).get(identity.name)

    async def identities(self) -> frozenset[Identity]:
        """Return whose certificates are known."""
        known = await self._all()
        return frozenset(Identity(namespace, name) for namespace, records in known.items() for name in records)

    async def put(self, identity: Identity, record: Record) -> None:
        """Write down what a VM was given."""
        known = await self._all()
        value = json.dumps([record.uid, record.renew_at.isoformat(), record.trusted])
        await self._write(identity.namespace, {identity.name: value})
        known.setdefault(identity.namespace, {})[identity.name] = record

    async def drop(self, identity: Identity) -> None:
        """Forget a VM."""
        known = await self._all()
        await self._write(identity.namespace, {identity.name: None})
        known.get(identity.namespace, {}).pop(identity.name, None)

    async def _all(self) -> dict[str, dict[str, Record]]:
        async with self._reading:
            if self._known is None:
                found = await self._ask(self._core.list_namespaced_config_map, self._namespace, label_selector=_LABEL)
                self._known = {
                    item.metadata.labels[_LABEL]: {
                        name: record for name, text in (item.data or {}).items() if (record := _parsed(text))
                    }
                    for item in found.items
                }
            return self._known

    async def _write(self, namespace: str, data: dict[str, str | None]) -> None:
        name = f"elbowroom-certificates-{namespace}"
        meta = {"name": name, "labels": {_LABEL: namespace}}
        try:
            await self._ask(self._core.patch_namespaced_config_map, name, self._namespace, {"data": data})
        except ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            try:
                await self._ask(self._core.create_namespaced_config_map, self._namespace, {"metadata": meta})
            except ApiException as made:
                if made.status != _CONFLICT:
                    raise
            await self._ask(self._core.patch_namespaced_config_map, name, self._namespace, {"data": data})

    @staticmethod
    async def _ask(call: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401  # the client's
        return await asyncio.to_thread(call, *arguments, _request_timeout=_PATIENCE, **named)


def _parsed(text: str) -> Record | None:
    """Read a record; one that somebody has touched is none."""
    try:
        uid, renew_at, trusted = json.loads(text)
        return Record(str(uid), datetime.fromisoformat(renew_at), str(trusted))
    except (ValueError, TypeError):
        return None
