"""Who is who: identities in certificates, and contexts that read renewed files.

A VM's certificate says `urn:elbowroom:vm:NAMESPACE:NAME`, the operator's `urn:elbowroom:operator`. Source and
receiver of a move are the same VM, so they hold the same certificate; a certificate of another VM opens nothing here.
"""

from __future__ import annotations

import os
import shutil
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR: Final = "urn:elbowroom:operator"
_VM: Final = "urn:elbowroom:vm:"
OPERATOR_HOST: Final = "operator.elbowroom.internal"
_NAMES: Final = {
    "ca.crt": ("ca-cert.pem",),
    "tls.crt": ("server-cert.pem", "client-cert.pem"),
    "tls.key": ("server-key.pem", "client-key.pem"),
}


class CertificateError(Exception):
    """The certificates that the pod was given cannot be used; the message says which and why."""


@dataclass(frozen=True)
class Identity:
    """A VM, by what its certificate says."""

    namespace: str
    name: str

    @property
    def uri(self) -> str:
        """The name that is compared."""
        return f"{_VM}{self.namespace}:{self.name}"

    @property
    def host(self) -> str:
        """The name that a client asks for in TLS: pods have addresses, and addresses change."""
        return f"{self.name}.{self.namespace}.vm.elbowroom.internal"

    @property
    def distinguished_names(self) -> tuple[str, str]:
        """The subject, which is all that QEMU's own check knows, in both orders: versions of GnuTLS differ."""
        parts = ["O=elbowroom", f"OU={self.namespace}", f"CN={self.name}"]
        return ",".join(parts), ",".join(reversed(parts))


@dataclass(frozen=True)
class Files:
    """The folder of a mounted Secret with `ca.crt`, `tls.crt` and `tls.key`."""

    folder: Path

    def identity(self) -> Identity:
        """Return whom the certificate is for: the one place where a runner learns its VM's name."""
        try:
            certificate = x509.load_pem_x509_certificate((self.folder / "tls.crt").read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            raise CertificateError(f"the certificate in {self.folder} cannot be read: {error}") from error
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
            if uri.startswith(_VM) and uri.count(":") == _VM.count(":") + 1:
                namespace, name = uri.removeprefix(_VM).split(":")
                return Identity(namespace, name)
        raise CertificateError(f"the certificate in {self.folder} is not for a VM: it has no name {_VM}NAMESPACE:NAME")

    def version(self) -> tuple[int, ...]:
        """Return something that changes when the files do."""
        return tuple((self.folder / name).stat().st_mtime_ns for name in _NAMES)

    def server(self) -> ssl.SSLContext:
        """Return a context for a server that lets nobody in without a certificate of our authority."""
        context = self._context(ssl.Purpose.CLIENT_AUTH)
        current = (self.version(), context)

        def renewed(sock: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            # Each handshake looks whether the files are new: the kubelet replaces them in place.
            nonlocal current
            version = self.version()
            if version != current[0]:
                current = (version, self._context(ssl.Purpose.CLIENT_AUTH))
            sock.context = current[1]

        context.sni_callback = renewed
        return context

    def client(self) -> ssl.SSLContext:
        """Return a context for a call to another runner."""
        return self._context(ssl.Purpose.SERVER_AUTH)

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(purpose, cafile=str(self.folder / "ca.crt"))
            context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(f"the certificates in {self.folder} cannot be used: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def for_qemu(self, target: Path) -> None:
        """Copy the files to the names that QEMU expects. It reads them when its credentials object is made."""
        target.mkdir(mode=0o700, exist_ok=True)
        for source, names in _NAMES.items():
            for name in names:
                new = target / f"{name}.new"
                shutil.copyfile(self.folder / source, new)
                os.chmod(new, 0o600)  # noqa: PTH101
                new.replace(target / name)


def peer_names(certificate: dict[str, Any] | None) -> frozenset[str]:
    """Return the URIs in a peer's certificate, as the ssl module gives it."""
    names = (certificate or {}).get("subjectAltName", ())
    return frozenset(value for kind, value in names if kind == "URI")
