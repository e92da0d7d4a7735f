"""Keys and certificates as values. Time comes in as an argument.

All keys are RSA: QEMU's migration refuses ECDSA. Certificates live for a day and are renewed after two thirds of it;
the authority lives for a year, and its successor is in everybody's bundle for two weeks before it signs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elbowroom.runner.tls import OPERATOR, OPERATOR_HOST, Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

_BITS: Final = 2048
_SKEW: Final = timedelta(minutes=5)
"""Clocks of nodes differ."""
AUTHORITY_LIFE: Final = timedelta(days=365)
AUTHORITY_OVERLAP: Final = timedelta(days=30)
_SERVER: Final = "urn:elbowroom:server"
LIFE: Final = timedelta(days=1)
RENEW_AFTER: Final = LIFE * 2 / 3


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate."""
        return x509.load_pem_x509_certificate(self.certificate)

    def expires(self) -> datetime:
        """Return when it ends."""
        return self.parsed.not_valid_after_utc


@dataclass(frozen=True)
class Authority:
    """What signs: the newest pair that is old enough for everybody to know it, and all that are still trusted."""

    pairs: tuple[KeyPair, ...]
    """Oldest first."""

    def bundle(self) -> bytes:
        """Return the certificates that everybody trusts."""
        return b"".join(pair.certificate for pair in self.pairs)

    def signer(self, now: datetime) -> KeyPair:
        """Return the pair that signs now: the oldest that outlives a certificate by far."""
        lasting = [pair for pair in self.pairs if pair.expires() - now > AUTHORITY_OVERLAP / 2]
        return (lasting or list(self.pairs))[0]

    def maintained(self, now: datetime) -> Authority:
        """Return the authority without what has expired and with a successor in time, or itself."""
        living = tuple(pair for pair in self.pairs if pair.expires() > now)
        if not living or living[-1].expires() - now < AUTHORITY_OVERLAP:
            living = (*living, new_authority_pair(now))
        return self if living == self.pairs else Authority(living)


def new_authority_pair(now: datetime) -> KeyPair:
    """Make a pair that can sign others."""
    key = _new_key()
    name = x509.Name([_attribute(NameOID.ORGANIZATION_NAME, "elbowroom"), _attribute(NameOID.COMMON_NAME, "authority")])
    builder = (
        _builder(name, name, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue_vm(authority: Authority, identity: Identity, now: datetime) -> KeyPair:
    """Make the certificate of one VM: it serves, and it calls its other runner."""
    subject = [("O", "elbowroom"), ("OU", identity.namespace), ("CN", identity.name)]
    return _issue(authority, subject, identity.uri, identity.host, now)


def issue_operator(authority: Authority, now: datetime) -> KeyPair:
    """Make the operator's own certificate."""
    return _issue(authority, [("O", "elbowroom"), ("CN", "operator")], OPERATOR, OPERATOR_HOST, now)


def issue_server(authority: Authority, host: str, now: datetime) -> KeyPair:
    """Make the certificate of a Service of ours that the API server calls. It is no client, and nobody's runner."""
    return _issue(authority, [("O", "elbowroom"), ("CN", "guard")], _SERVER, host, now)


def needs_renewal(pair: KeyPair, authority: Authority, now: datetime) -> bool:
    """Tell whether a certificate is old, or signed by somebody whom we do not trust any more."""
    try:
        certificate = pair.parsed
    except ValueError:  # somebody has touched it
        return True
    if now >= certificate.not_valid_before_utc + _SKEW + RENEW_AFTER:
        return True
    return not any(_signed_by(certificate, known.parsed) for known in authority.pairs)


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


_OIDS: Final = {"O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "CN": NameOID.COMMON_NAME}


def _issue(authority: Authority, subject: Sequence[tuple[str, str]], uri: str, host: str, now: datetime) -> KeyPair:
    signer = authority.signer(now)
    signing_key = _read_key(signer.key)
    key = _new_key()
    name = x509.Name([_attribute(_OIDS[kind], value) for kind, value in subject])
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri), x509.DNSName(host)]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([] if uri == _SERVER else [ExtendedKeyUsageOID.CLIENT_AUTH])]
    builder = (
        _builder(name, signer.parsed.subject, key, now, LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return KeyPair(_pem(builder.sign(signing_key, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_encipherment=not signs, key_cert_sign=signs, crl_sign=signs,
        content_commitment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


@lru_cache(maxsize=4)
def _read_key(pem: bytes) -> rsa.RSAPrivateKey:
    """Read an authority's key once: it is checked each time, which takes as long as making one."""
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, rsa.RSAPrivateKey)  # noqa: S101
    return key


def _attribute(kind: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(kind, value)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
