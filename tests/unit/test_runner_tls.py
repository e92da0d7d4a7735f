"""Contexts that read renewed files, and the names in a certificate."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from elbowroom.authority.certificates import Authority, KeyPair, issue_operator, issue_vm, new_authority_pair
from elbowroom.runner.tls import CertificateError, Files, Identity, peer_names

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)
AUTHORITY = Authority((new_authority_pair(NOW),))
DB = Identity("shop", "db")


def put(folder: Path, pair: KeyPair) -> Files:
    folder.mkdir(exist_ok=True)
    for name, content in (("ca.crt", AUTHORITY.bundle()), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / name).write_bytes(content)
    return Files(folder)


def test_a_server_shows_its_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    files = put(tmp_path / "server", issue_vm(AUTHORITY, DB, NOW))
    client = put(tmp_path / "client", issue_operator(AUTHORITY, NOW)).client()

    async def talk() -> list[int]:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=files.server())
        port = server.sockets[0].getsockname()[1]

        async def shown() -> int:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=DB.host)
            raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return x509.load_der_x509_certificate(raw).serial_number

        first = await shown()
        put(tmp_path / "server", issue_vm(AUTHORITY, DB, NOW))
        second = await shown()
        server.close()
        return [first, second]

    first, second = asyncio.run(talk())
    assert first != second


def test_a_runner_learns_its_name_from_its_certificate(tmp_path: Path) -> None:
    assert put(tmp_path, issue_vm(AUTHORITY, DB, NOW)).identity() == DB
    with pytest.raises(CertificateError, match="is not for a VM"):
        put(tmp_path, issue_operator(AUTHORITY, NOW)).identity()


def test_certificates_that_do_not_belong_together_are_told(tmp_path: Path) -> None:
    files = put(tmp_path, KeyPair(issue_vm(AUTHORITY, DB, NOW).certificate, issue_vm(AUTHORITY, DB, NOW).key))
    with pytest.raises(CertificateError, match="cannot be used"):
        files.server()


def test_names_of_a_peer() -> None:
    assert peer_names(None) == frozenset()
    assert peer_names({"subjectAltName": (("DNS", "a"), ("URI", "urn:b"))}) == {"urn:b"}
