"""The guard shows a new certificate without a restart, and keeps the old one where the new one is none."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from elbowroom.authority.certificates import Authority, KeyPair, issue_server
from elbowroom.guard.certificate import FromFiles, NoCertificateError, Renewed

if TYPE_CHECKING:
    from pathlib import Path

HOST = "elbowroom-guard.elbowroom-system.svc"


def shown(context: ssl.SSLContext, authority: Authority) -> x509.Certificate:
    """Return the certificate that a client sees, which checks it as the API server would."""
    client = ssl.create_default_context(cadata=authority.bundle().decode())
    ours, theirs = socket.socketpair()
    server = threading.Thread(target=lambda: context.wrap_socket(theirs, server_side=True).close())
    server.start()
    with client.wrap_socket(ours, server_hostname=HOST) as connection:
        found = connection.getpeercert(binary_form=True)
        assert found is not None
        server.join(5)
        return x509.load_der_x509_certificate(found)


def put(folder: Path, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def test_whoever_connects_next_sees_the_renewed_one(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority(()).maintained(now)
    renewed = Renewed(FromFiles(tmp_path))
    with pytest.raises(NoCertificateError, match="cannot be read"):
        asyncio.run(renewed.refresh())
    pairs = [issue_server(authority, HOST, now - timedelta(hours=hours)) for hours in (2, 0)]
    for pair in pairs:
        put(tmp_path, pair)
        asyncio.run(renewed.refresh())
        assert shown(renewed.context, authority) == pair.parsed
    put(tmp_path, KeyPair(pairs[0].certificate, pairs[1].key))
    with pytest.raises(NoCertificateError, match="do not fit together"):
        asyncio.run(renewed.refresh())
    assert shown(renewed.context, authority) == pairs[1].parsed


def test_it_is_a_server_and_nobody_s_client() -> None:
    now = datetime.now(UTC)
    found = issue_server(Authority(()).maintained(now), HOST, now).parsed
    usages = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
