"""Certificates: who they are for, how long they live, and how their authority is replaced without a gap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from elbowroom.authority.certificates import (
    AUTHORITY_LIFE,
    AUTHORITY_OVERLAP,
    LIFE,
    RENEW_AFTER,
    Authority,
    KeyPair,
    issue_operator,
    issue_vm,
    needs_renewal,
    new_authority_pair,
)
from elbowroom.runner.tls import OPERATOR, Identity

NOW = datetime(2027, 1, 1, tzinfo=UTC)
AUTHORITY = Authority((new_authority_pair(NOW),))
DB = Identity("shop", "db")


def names(pair: KeyPair) -> list[str]:
    found = pair.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.UniformResourceIdentifier)


def test_a_certificate_says_whom_it_is_for() -> None:
    vm, operator = issue_vm(AUTHORITY, DB, NOW), issue_operator(AUTHORITY, NOW)
    assert names(vm) == ["urn:elbowroom:vm:shop:db"]
    assert names(operator) == [OPERATOR]
    assert vm.parsed.subject.rfc4514_string() in DB.distinguished_names
    assert isinstance(vm.parsed.public_key(), rsa.RSAPublicKey), "QEMU's migration takes RSA only"


def test_names_may_be_as_long_as_kubernetes_lets_them_be() -> None:
    long = Identity("n" * 63, "v" * 63)
    assert names(issue_vm(AUTHORITY, long, NOW)) == [long.uri]


def test_certificates_are_short_lived_and_renewed_long_before_their_end() -> None:
    pair = issue_vm(AUTHORITY, DB, NOW)
    assert pair.expires() == NOW + LIFE
    assert not needs_renewal(pair, AUTHORITY, NOW + RENEW_AFTER - timedelta(seconds=1))
    assert needs_renewal(pair, AUTHORITY, NOW + RENEW_AFTER)


def test_a_certificate_of_somebody_else_is_replaced() -> None:
    other = Authority((new_authority_pair(NOW),))
    assert needs_renewal(issue_vm(other, DB, NOW), AUTHORITY, NOW)
    assert needs_renewal(KeyPair(b"rubbish", b""), AUTHORITY, NOW)


def test_the_authority_is_replaced_without_a_gap() -> None:
    assert AUTHORITY.maintained(NOW) is AUTHORITY
    late = NOW + AUTHORITY_LIFE - AUTHORITY_OVERLAP + timedelta(days=1)
    both = AUTHORITY.maintained(late)
    assert len(both.pairs) == 2
    assert both.maintained(late) is both
    # Everybody gets to know the new one before it signs anything.
    assert both.signer(late) == AUTHORITY.pairs[0]
    assert both.bundle().count(b"BEGIN CERTIFICATE") == 2
    later = late + AUTHORITY_OVERLAP / 2
    assert both.signer(later) == both.pairs[1]
    assert not needs_renewal(issue_vm(both, DB, later), both, later)
    after = NOW + AUTHORITY_LIFE + timedelta(days=1)
    assert both.maintained(after).pairs == both.pairs[1:]
