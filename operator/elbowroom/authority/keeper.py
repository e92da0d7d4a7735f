"""The Secrets that certificates are kept in.

The authority's keys never leave the operator's namespace. A VM's key is made for its own namespace's Secret and kept
nowhere else. No Secret of another namespace is ever read: the operator may write there, and not look. Whether one is
ours to write says its type, which the API server lets nobody change; what is in it says a record of our own
(records.py). Every write of the authority has a precondition: of two operators that are at it at once, one wins and
the other reads again.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random

from elbowroom.runner.tls import Files

from .certificates import RENEW_AFTER, Authority, KeyPair, issue_operator, issue_vm, needs_renewal
from .records import Record, Records

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from elbowroom.runner.tls import Identity

AUTHORITY_SECRET: Final = "elbowroom-authority"  # noqa: S105  # a name
MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "elbowroom"
_PEM = re.compile(rb"-----BEGIN [^-]+-----.+?-----END [^-]+-----\n", re.DOTALL)
VM_SECRET_TYPE: Final = "elbowroom.dev/vm-certificate"  # noqa: S105  # a type
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
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
        self._records = Records(core, namespace)
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
        authority, now = await self.authority(), self._clock()
        trusted = sha256(authority.bundle()).hexdigest()
        record = await self._records.get(identity)
        if (
            record is not None
            and record.trusted == trusted
            and now < record.renew_at
            and await self._is_there(identity)
        ):
            return
        pair = await asyncio.to_thread(issue_vm, authority, identity, now)
        content = {"ca.crt": authority.bundle(), "tls.crt": pair.certificate, "tls.key": pair.key}

        async def once() -> client.V1Secret:
            return await self._put_vm(identity, content)

        written = await self._persist(once)
        await self._records.put(identity, Record(str(_meta(written).uid), now + RENEW_AFTER, trusted))

    async def given(self) -> frozenset[Identity]:
        """Return the VMs that have a certificate, also those that went while nobody looked."""
        return await self._records.identities()

    async def forget_vm(self, identity: Identity) -> None:
        """Delete the Secret of a VM that is gone: the one that we have made, and no other of its name."""
        record = await self._records.get(identity)
        if record is None:
            return
        body = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=record.uid))
        name, namespace = vm_secret_name(identity.name), identity.namespace
        try:
            await self._ask(self._core.delete_namespaced_secret, name, namespace, body=body)
        except ApiException as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
        await self._records.drop(identity)

    async def _is_there(self, identity: Identity) -> bool:
        """Tell whether a Secret of a VM's name is there, by whether another one could be made."""
        try:
            secret = _vm_secret(identity, {})
            await self._ask(self._core.create_namespaced_secret, identity.namespace, secret, dry_run="All")
        except ApiException as error:
            if error.status == _CONFLICT:
                return True
            raise
        return False

    async def _put_vm(self, identity: Identity, content: dict[str, bytes]) -> client.V1Secret:
        secret, namespace = _vm_secret(identity, content), identity.namespace
        name = vm_secret_name(identity.name)
        made: client.V1Secret
        try:
            made = await self._ask(self._core.replace_namespaced_secret, name, namespace, secret)
            return made  # noqa: TRY300  # there is no else for the third way
        except ApiException as error:
            if error.status == _INVALID:
                raise NotOursError(
                    f"Secret {namespace}/{name} is not of the type {VM_SECRET_TYPE}: "
                    f"somebody else has made it; rename or delete it"
                ) from error
            if error.status != _NOT_FOUND:
                raise
        try:
            made = await self._ask(self._core.create_namespaced_secret, namespace, secret)
        except ApiException as error:
            if error.status == _CONFLICT:
                raise _OvertakenError(name) from error
            raise
        return made

    @staticmethod
    async def _ask(call: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401  # the client's
        return await asyncio.to_thread(call, *arguments, _request_timeout=_PATIENCE, **named)

    async def _authority_once(self) -> Authority:
        found = await self._read()
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
            await self._write(content, found)
        return kept

    async def _persist(self, once: Callable[[], Awaitable[T]]) -> T:
        """Do something until nobody was faster; each time it has read again."""
        retries = AsyncRetrying(
            retry=retry_if_exception_type(_OvertakenError),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random(0.02, 0.2),
            reraise=True,
        )
        return await retries(once)

    async def _read(self) -> client.V1Secret | None:
        try:
            found: client.V1Secret = await self._ask(
                self._core.read_namespaced_secret, AUTHORITY_SECRET, self._namespace
            )
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return found

    async def _write(self, content: dict[str, bytes], found: client.V1Secret | None) -> None:
        """Create the authority's Secret, or replace exactly the one that was read."""
        version = _meta(found).resource_version if found is not None else None
        secret = _secret(AUTHORITY_SECRET, "Opaque", content, version)
        try:
            if found is None:
                await self._ask(self._core.create_namespaced_secret, self._namespace, secret)
            else:
                await self._ask(self._core.replace_namespaced_secret, AUTHORITY_SECRET, self._namespace, secret)
        except ApiException as error:
            if error.status in (_CONFLICT, _NOT_FOUND) and "namespaces" not in str(error.body):
                raise _OvertakenError(AUTHORITY_SECRET) from error
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


def _secret(name: str, kind: str, content: dict[str, bytes], version: str | None = None) -> client.V1Secret:
    return client.V1Secret(
        metadata=client.V1ObjectMeta(name=name, labels={MANAGED_LABEL: MANAGER}, resource_version=version),
        type=kind, data={key: b64encode(value).decode() for key, value in content.items()},
    )  # fmt: skip


def _vm_secret(identity: Identity, content: dict[str, bytes]) -> client.V1Secret:
    return _secret(vm_secret_name(identity.name), VM_SECRET_TYPE, content)


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
