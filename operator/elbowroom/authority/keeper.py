"""The Secrets that certificates are kept in.

The authority's keys never leave the operator's namespace. A VM's key is made for its own namespace's Secret and kept
nowhere else. Every write has a precondition: of two operators that are at it at once, one wins and the other reads
again.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random

from elbowroom.runner.tls import Files

from .certificates import Authority, KeyPair, issue_operator, issue_vm, needs_renewal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from elbowroom.runner.tls import Identity

AUTHORITY_SECRET: Final = "elbowroom-authority"  # noqa: S105  # a name
MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "elbowroom"
_PEM = re.compile(rb"-----BEGIN [^-]+-----.+?-----END [^-]+-----\n", re.DOTALL)
_NOT_FOUND, _CONFLICT = 404, 409
_TRIES = 6
_PATIENCE = (5, 15)
"""Seconds for a connection, and for an answer."""
T = TypeVar("T")


class KeeperError(Exception):
    """The authority cannot be kept; the message says why."""


class NotOursError(KeeperError):
    """There is a Secret of this name that somebody else has made; the message says which."""


class DamagedError(KeeperError):
    """The authority's Secret cannot be used; the message says what to do."""


class _OvertakenError(KeeperError):
    """Somebody else was faster: read again."""


def vm_secret_name(vm: str) -> str:
    """Return the name of the Secret that a VM's pods mount."""
    return f"elbowroom-vm-{vm}"


class Keeper:
    """Keeps the authority and hands out certificates."""

    def __init__(self, core: client.CoreV1Api, namespace: str, clock: Callable[[], datetime]) -> None:
        """Take a client, the operator's namespace and a clock."""
        self._core, self._namespace, self._clock = core, namespace, clock
        self._own: tuple[KeyPair, Authority, ssl.SSLContext] | None = None

    async def authority(self) -> Authority:
        """Return the authority, made or renewed if need be."""
        return await self._persist(self._authority_once)

    async def operator_context(self) -> ssl.SSLContext:
        """Return a TLS context that speaks as the operator. Its certificate lives in memory, and is renewed in time."""
        authority = await self.authority()
        own = self._own
        if own is None or own[1] != authority or needs_renewal(own[0], authority, self._clock()):
            pair = await asyncio.to_thread(issue_operator, authority, self._clock())
            own = self._own = (pair, authority, client_context(pair, authority))
        return own[2]

    async def ensure_vm(self, identity: Identity) -> None:
        """See to it that a VM's Secret is there, valid for long enough and up to date."""
        authority = await self.authority()

        async def once() -> None:
            await self._vm_once(identity, authority)

        await self._persist(once)

    async def forget_vm(self, identity: Identity) -> None:
        """Delete the Secret of a VM that is gone."""
        name = vm_secret_name(identity.name)
        found = await self._read(identity.namespace, name)
        if found is None:
            return
        self._check_ours(found)
        preconditions = client.V1Preconditions(uid=_meta(found).uid)
        try:
            await asyncio.to_thread(
                self._core.delete_namespaced_secret,
                name,
                identity.namespace,
                body=client.V1DeleteOptions(preconditions=preconditions),
                _request_timeout=_PATIENCE,
            )
        except ApiException as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def _authority_once(self) -> Authority:
        found = await self._read(self._namespace, AUTHORITY_SECRET)
        now = self._clock()
        if found is not None:
            self._check_ours(found)
        authority = Authority(()) if found is None else _parse(found)
        kept = await asyncio.to_thread(authority.maintained, now)
        if kept is not authority:
            content = {
                "authority.crt": kept.bundle(),
                "authority.key": b"".join(pair.key for pair in kept.pairs),
            }
            await self._write(self._namespace, AUTHORITY_SECRET, content, "Opaque", found)
        return kept

    async def _vm_once(self, identity: Identity, authority: Authority) -> None:
        name = vm_secret_name(identity.name)
        found = await self._read(identity.namespace, name)
        now = self._clock()
        if found is not None:
            self._check_ours(found)
            data = _data(found)
            pair = KeyPair(data.get("tls.crt", b""), data.get("tls.key", b""))
            if data.get("ca.crt") == authority.bundle() and not needs_renewal(pair, authority, now):
                return
        pair = await asyncio.to_thread(issue_vm, authority, identity, now)
        content = {"ca.crt": authority.bundle(), "tls.crt": pair.certificate, "tls.key": pair.key}
        await self._write(identity.namespace, name, content, "kubernetes.io/tls", found)

    async def _persist(self, once: Callable[[], Awaitable[T]]) -> T:
        """Do something until nobody was faster; each time it has read again."""
        retries = AsyncRetrying(
            retry=retry_if_exception_type(_OvertakenError),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random(0.02, 0.2),
            reraise=True,
        )
        return await retries(once)

    async def _read(self, namespace: str, name: str) -> client.V1Secret | None:
        try:
            return await asyncio.to_thread(
                self._core.read_namespaced_secret, name, namespace, _request_timeout=_PATIENCE
            )
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def _write(
        self, namespace: str, name: str, content: dict[str, bytes], kind: str, found: client.V1Secret | None
    ) -> None:
        """Create a Secret, or replace exactly the one that was read."""
        version = _meta(found).resource_version if found is not None else None
        secret = client.V1Secret(
            metadata=client.V1ObjectMeta(name=name, labels={MANAGED_LABEL: MANAGER}, resource_version=version),
            type=kind,
            data={key: b64encode(value).decode() for key, value in content.items()},
        )
        try:
            if found is None:
                await asyncio.to_thread(
                    self._core.create_namespaced_secret, namespace, secret, _request_timeout=_PATIENCE
                )
            else:
                await asyncio.to_thread(
                    self._core.replace_namespaced_secret, name, namespace, secret, _request_timeout=_PATIENCE
                )
        except ApiException as error:
            if error.status in (_CONFLICT, _NOT_FOUND) and "namespaces" not in str(error.body):
                raise _OvertakenError(name) from error
            raise

    @staticmethod
    def _check_ours(secret: client.V1Secret) -> None:
        meta = _meta(secret)
        if (meta.labels or {}).get(MANAGED_LABEL) != MANAGER:
            raise NotOursError(
                f"Secret {meta.namespace}/{meta.name} has no label {MANAGED_LABEL}={MANAGER}: "
                f"somebody else has made it; rename or delete it"
            )


def _meta(secret: client.V1Secret) -> client.V1ObjectMeta:
    assert secret.metadata is not None  # noqa: S101  # the API server always sends it
    return secret.metadata


def _data(secret: client.V1Secret) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in (secret.data or {}).items()}


def _parse(secret: client.V1Secret) -> Authority:
    data = _data(secret)
    certificates, keys = (_PEM.findall(data.get(f"authority.{kind}", b"")) for kind in ("crt", "key"))
    if not certificates or len(certificates) != len(keys):
        raise DamagedError(
            f"Secret {_meta(secret).namespace}/{_meta(secret).name} holds {len(certificates)} certificates "
            f"and {len(keys)} keys; delete it, and all VMs get new certificates"
        )
    return Authority(tuple(KeyPair(certificate, key) for certificate, key in zip(certificates, keys, strict=True)))


def client_context(pair: KeyPair, authority: Authority) -> ssl.SSLContext:
    """Return a context that shows this certificate."""
    # The ssl module reads keys from files only; these are gone as soon as it has.
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        for name, content in (("ca.crt", authority.bundle()), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (files.folder / name).write_bytes(content)
        return files.client()
