"""The authority in the operator's Secret, and the Secrets of VMs, on a real API server."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from elbowroom.authority.certificates import AUTHORITY_LIFE, AUTHORITY_OVERLAP, LIFE, RENEW_AFTER
from elbowroom.authority.keeper import AUTHORITY_SECRET, DamagedError, Keeper, NotOursError, vm_secret_name
from elbowroom.runner.tls import Identity

if TYPE_CHECKING:
    from support.namespace import Namespace

START = datetime.now(UTC)


class Clock:
    """A clock that a test can set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def secret(namespace: Namespace, name: str) -> dict[str, bytes]:
    found = namespace.testbed.plain(namespace.core.read_namespaced_secret(name, namespace.name))
    return {key: b64decode(value) for key, value in found["data"].items()}


def test_several_operators_agree_on_one_authority(namespace: Namespace) -> None:
    keepers = [Keeper(namespace.core, namespace.name, Clock()) for _ in range(4)]

    async def all_at_once() -> list[bytes]:
        return [authority.bundle() for authority in await asyncio.gather(*(keeper.authority() for keeper in keepers))]

    bundles = set(asyncio.run(all_at_once()))
    assert bundles == {secret(namespace, AUTHORITY_SECRET)["authority.crt"]}


def test_a_vms_secret_is_made_kept_and_renewed(namespace: Namespace) -> None:
    clock = Clock()
    keeper = Keeper(namespace.core, namespace.name, clock)
    identity = Identity(namespace.name, "db")
    name = vm_secret_name("db")
    asyncio.run(keeper.ensure_vm(identity))
    first = secret(namespace, name)
    certificate = x509.load_pem_x509_certificate(first["tls.crt"])
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc < LIFE + timedelta(minutes=10)
    assert set(first) == {"ca.crt", "tls.crt", "tls.key"}

    asyncio.run(keeper.ensure_vm(identity))
    assert secret(namespace, name) == first

    clock.now = START + RENEW_AFTER + timedelta(minutes=1)
    asyncio.run(keeper.ensure_vm(identity))
    second = secret(namespace, name)
    assert second["tls.crt"] != first["tls.crt"]
    assert second["tls.key"] != first["tls.key"]
    assert second["ca.crt"] == first["ca.crt"]

    clock.now = START + AUTHORITY_LIFE - AUTHORITY_OVERLAP + timedelta(days=1)
    asyncio.run(keeper.ensure_vm(identity))
    assert secret(namespace, name)["ca.crt"].count(b"BEGIN CERTIFICATE") == 2

    namespace.kubectl("delete", "secret", name)
    asyncio.run(keeper.ensure_vm(identity))  # somebody has deleted it
    third = secret(namespace, name)
    # Whoever leads next knows what was given out, and leaves it alone.
    asyncio.run(Keeper(namespace.core, namespace.name, clock).ensure_vm(identity))
    assert secret(namespace, name) == third

    asyncio.run(keeper.forget_vm(identity))
    asyncio.run(keeper.forget_vm(identity))
    assert name not in namespace.kubectl("get", "secrets", "-o", "name")


def test_no_key_of_the_authority_gets_into_a_vms_namespace(namespace: Namespace) -> None:
    keeper = Keeper(namespace.core, namespace.name, Clock())
    asyncio.run(keeper.ensure_vm(Identity(namespace.name, "db")))
    key = secret(namespace, AUTHORITY_SECRET)["authority.key"]
    assert all(key not in value for value in secret(namespace, vm_secret_name("db")).values())


def test_the_operators_own_certificate_is_renewed(namespace: Namespace) -> None:
    clock = Clock()
    keeper = Keeper(namespace.core, namespace.name, clock)
    first = asyncio.run(keeper.operator_context())
    assert asyncio.run(keeper.operator_context()) is first
    clock.now = START + RENEW_AFTER + timedelta(minutes=1)
    assert asyncio.run(keeper.operator_context()) is not first


def test_somebody_elses_secret_is_left_alone(namespace: Namespace) -> None:
    name = vm_secret_name("db")
    namespace.kubectl("create", "secret", "generic", name, "--from-literal=mine=1")
    keeper = Keeper(namespace.core, namespace.name, Clock())
    with pytest.raises(NotOursError, match=f"Secret {namespace.name}/{name} is not of the type"):
        asyncio.run(keeper.ensure_vm(Identity(namespace.name, "db")))
    assert secret(namespace, name) == {"mine": b"1"}
    asyncio.run(keeper.forget_vm(Identity(namespace.name, "db")))
    assert secret(namespace, name) == {"mine": b"1"}


def test_a_namesake_of_a_secret_of_ours_is_not_deleted(namespace: Namespace) -> None:
    keeper = Keeper(namespace.core, namespace.name, Clock())
    identity = Identity(namespace.name, "db")
    asyncio.run(keeper.ensure_vm(identity))
    namespace.kubectl("delete", "secret", vm_secret_name("db"))
    namespace.kubectl("create", "secret", "generic", vm_secret_name("db"), "--from-literal=mine=1")
    asyncio.run(keeper.forget_vm(identity))
    assert secret(namespace, vm_secret_name("db")) == {"mine": b"1"}


def test_records_that_somebody_has_touched_cost_a_certificate_and_nothing_else(namespace: Namespace) -> None:
    identity = Identity(namespace.name, "db")
    asyncio.run(Keeper(namespace.core, namespace.name, Clock()).ensure_vm(identity))
    first = secret(namespace, vm_secret_name("db"))
    patch = '{"data":{"db":"[1]","web":"{}","api":"no"}}'
    namespace.kubectl("patch", "configmap", f"elbowroom-certificates-{namespace.name}", "--type=merge", "-p", patch)
    asyncio.run(Keeper(namespace.core, namespace.name, Clock()).ensure_vm(identity))
    assert secret(namespace, vm_secret_name("db"))["tls.crt"] != first["tls.crt"]


def test_a_damaged_authority_is_not_replaced_silently(namespace: Namespace) -> None:
    keeper = Keeper(namespace.core, namespace.name, Clock())
    asyncio.run(keeper.authority())
    namespace.kubectl("patch", "secret", AUTHORITY_SECRET, "--type=merge", "-p", '{"data":{"authority.key":""}}')
    with pytest.raises(DamagedError, match="holds 1 certificates and 0 keys"):
        asyncio.run(keeper.authority())
