"""The guard's certificate: of our own authority, or from files that others renew. It changes without a restart."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
from typing import TYPE_CHECKING, Any, Final, Protocol

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from elbowroom.authority.certificates import KeyPair, issue_server, needs_renewal
from elbowroom.authority.keeper import KeeperError
from elbowroom.cluster.client import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from elbowroom.authority.certificates import Authority
    from elbowroom.authority.keeper import Keeper
    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class NoCertificateError(Exception):
    """There is none that could be used; the message says which file or Secret."""


class Source(Protocol):
    """Where certificates come from."""

    async def current(self) -> KeyPair:
        """Return the one to use now. NoCertificateError: there is none."""


class OwnAuthority:
    """Certificates that this process makes for itself, and the webhook configuration that has to trust them."""

    def __init__(self, keeper: Keeper, api: Api, host: str, configuration: str, clock: Callable[[], datetime]) -> None:
        """Say what name the API server calls the guard by, and which configuration says so."""
        self._keeper, self._api, self._host, self._clock = keeper, api, host, clock
        self._path = f"{_HOOKS}/{configuration}"
        self._pair: KeyPair | None = None

    async def current(self) -> KeyPair:
        """Return a certificate that is good for long enough, and have the API server trust who made it."""
        try:
            authority = await self._keeper.authority()
        except ApiException as error:
            told = f"the authority's Secret: the API server said {error.status} {error.reason}"
            raise NoCertificateError(told) from error
        except (HTTPError, KeeperError) as error:
            raise NoCertificateError(f"the authority's Secret: {error}") from error
        if self._pair is None or needs_renewal(self._pair, authority, self._clock()):
            self._pair = await asyncio.to_thread(issue_server, authority, self._host, self._clock())
        await self._trusted(authority)
        return self._pair

    async def _trusted(self, authority: Authority) -> None:
        try:
            found = await self._api.get(self._path)
        except NotFoundError:
            _log.warning("nobody asks the guard: there is no %s", self._path.removeprefix(_HOOKS + "/"))
            return
        bundle = base64.b64encode(authority.bundle()).decode()
        stale = [
            number for number, hook in enumerate(found.get("webhooks", ()))
            if hook["clientConfig"].get("caBundle") != bundle
        ]  # fmt: skip
        if stale:
            version = found["metadata"]["resourceVersion"]
            await self._api.patch(
                self._path,
                [
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
                    *({"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
                      for number in stale),
                ],
            )  # fmt: skip


class FromFiles:
    """A mounted Secret with `tls.crt` and `tls.key`, which cert-manager, say, renews in place."""

    def __init__(self, folder: Path) -> None:
        """Say where."""
        self._folder = folder

    async def current(self) -> KeyPair:
        """Read them."""
        try:
            certificate, key = ((self._folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
        except OSError as error:
            raise NoCertificateError(f"the guard's certificate cannot be read: {error}") from error
        return KeyPair(certificate, key)


class Renewed:
    """A TLS context whose certificate is always the current one: whoever connects next gets it."""

    def __init__(self, source: Source) -> None:
        """Say where certificates come from."""
        self._source = source
        self._loaded: KeyPair | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    async def refresh(self) -> None:
        """Take the current one. NoCertificateError: what was loaded before, if anything, stays."""
        pair = await self._source.current()
        if pair == self._loaded:
            return
        # The ssl module reads from files only; this one is gone as soon as it has.
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.key + pair.certificate)
            file.flush()
            try:
                # First where it does no harm: a context that was given the one and refused the other has neither.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file.name)
            except ssl.SSLError as error:
                raise NoCertificateError(f"the guard's certificate and key do not fit together: {error}") from error
            self.context.load_cert_chain(file.name)
        self._loaded = pair
