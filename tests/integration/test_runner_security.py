"""Who may talk to a runner, and who may send it a guest: nobody without the right certificate."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from elbowroom.authority.certificates import issue_operator, issue_vm
from elbowroom.authority.keeper import client_context
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.interface import UnreachableError
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.runner.messages import GuestState, Migrate, OfAttempt
from elbowroom.runner.tls import Identity
from support.console import assert_whole
from support.vms import QUICK, new_authority
from support.waiting import until

if TYPE_CHECKING:
    from elbowroom.drivers.interface import VirtualMachine
    from support.vms import Vms

NOW = datetime.now(UTC)
# The server's alert says why, but its hanging up can be faster than that.
REFUSED = r"(?i)certificate.required|unknown.ca|connection reset|server disconnected"
MAGIC = b"QEVM\x00\x00\x00\x03"


def test_only_the_operator_may_call(vms: Vms) -> None:
    vm = vms.boot("db")
    trusted = ssl.create_default_context(cadata=vms.authority.bundle().decode())
    anonymous = QemuDriver(RunnerClient(lambda: trusted, tries=1))
    with pytest.raises(UnreachableError, match=REFUSED):
        vms.run(anonymous.guest(vm))

    stranger = vms.driver_with(issue_operator(new_authority(), NOW), vms.authority)
    with pytest.raises(UnreachableError, match=REFUSED):
        vms.run(stranger.guest(vm))

    other = vms.driver_with(issue_vm(vms.authority, Identity(vms.namespace.name, "other"), NOW))
    for work in (other.guest(vm), other.resize(vm, cpus=2), other.retire(vm, 1), other.release(vm, 1)):
        reason, sentence = vms.refused(work)
        assert reason == "Forbidden"
        assert sentence == f"urn:elbowroom:vm:{vms.namespace.name}:other may not do this with VM db"

    namesake = vms.driver_with(issue_vm(vms.authority, Identity("elsewhere", "db"), NOW))
    assert vms.refused(namesake.release(vm, 1))[0] == "Forbidden"

    # The VM's own other runner may say two things, and nothing else.
    itself = vms.driver_with(issue_vm(vms.authority, Identity(vms.namespace.name, "db"), NOW))
    assert vms.refused(itself.guest(vm))[0] == "Forbidden"
    assert vms.refused(itself.release(vm, 1))[0] == "StaleAttempt"
    assert vms.refused(itself.retire(vm, 1))[0] == "GuestRunsHere"
    assert vms.status(vm).state is GuestState.RUNNING


def test_a_runner_with_anothers_certificate_is_not_believed(vms: Vms) -> None:
    """The operator checks whom it talks to as well."""
    vm = vms.boot("db")
    forged = QemuDriver(vms.driver._client)  # noqa: SLF001
    with pytest.raises(UnreachableError, match=r"(?i)hostname mismatch"):
        vms.run(forged.guest(type(vm)(**{**vm.__dict__, "name": "other"})))


async def knock(address: str, context: ssl.SSLContext | None, words: bytes) -> bytes:
    """Connect to a receiver's migration port, say something and return what it says before it hangs up."""
    reader, writer = await asyncio.open_connection(
        address, 8444, ssl=context, server_hostname="any" if context else None
    )
    writer.write(words)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()


def waiting_receiver(vms: Vms, source: VirtualMachine) -> VirtualMachine:
    receiver, _ = vms.prepare(source, QUICK, node="node-2")
    assert vms.status(receiver).state is GuestState.INCOMING
    assert receiver.address is not None
    return receiver


def assert_not_taken_in(vms: Vms, receiver: VirtualMachine) -> None:
    assert not vms.ticks(receiver)
    assert '"status": "active"' not in vms.log(receiver.pod), "it took the stream"


def test_a_plaintext_migration_is_refused(vms: Vms) -> None:
    source = vms.boot("db", node="node-1")
    receiver = waiting_receiver(vms, source)
    vms.run(knock(str(receiver.address), None, MAGIC * 64))
    assert_not_taken_in(vms, receiver)
    vms.move(source, node="node-3")


def test_the_stream_of_another_vm_is_refused(vms: Vms) -> None:
    source = vms.boot("db", node="node-1")
    receiver = waiting_receiver(vms, source)
    other = issue_vm(vms.authority, Identity(vms.namespace.name, "other"), NOW)
    context = client_context(other, vms.authority)
    context.check_hostname = False  # a sender that does not care whom it talks to
    vms.run(knock(str(receiver.address), context, MAGIC * 64))
    until("QEMU says no", lambda: f"OU={vms.namespace.name},CN=other is denied" in vms.log(receiver.pod))
    assert_not_taken_in(vms, receiver)


def test_a_guest_is_not_sent_to_the_receiver_of_another_vm(vms: Vms) -> None:
    source = vms.boot("db", node="node-1")
    receiver = waiting_receiver(vms, source)
    other = vms.boot("other", node="node-3")
    vms.call(other, "migrate", Migrate.model_validate({"attempt": 1, "to": {"host": receiver.address}}))
    told = vms.until_over(other)
    assert told.phase == "Failed"
    assert "certificate" in told.message.lower()
    vms.until_ticking(other)
    assert_whole([vms.ticks(other)])
    assert not vms.ticks(receiver)
    vms.call(source, "cancel", OfAttempt(attempt=9))
