"""A VM in a pod: it boots, is Ready when its guest is up, says what is wrong with its configuration, and ends cleanly."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import yaml
from elbowroom.runner.messages import GuestState, IncidentKind
from support.console import assert_whole
from support.namespace import condition
from support.processes import start_time
from support.testbed import ROOT
from support.vms import GUEST, MIB, QUICK, Guest
from support.waiting import stays, until

if TYPE_CHECKING:
    from elbowroom.drivers.interface import VirtualMachine
    from support.namespace import Json, Namespace
    from support.vms import Vms

BASE = 128 * MIB


def test_a_vm_boots_and_its_console_is_the_log(vms: Vms) -> None:
    vm = vms.boot("db")
    status = vms.status(vm)
    assert (status.state, status.vm, status.namespace) == (GuestState.RUNNING, "db", vms.namespace.name)
    assert status.size is not None
    assert (status.size.cpus, status.size.memory) == (1, BASE)
    assert_whole([vms.until_ticking(vm)])


def test_a_vm_is_not_ready_before_its_guest_answers(vms: Vms) -> None:
    """The guest has no server at this port, so it never answers: a connection alone is not an answer."""
    vms.give_certificate("db")
    vms.namespace.apply(vms.pod("db", ports=[8080, 9090], ready={"http": {"port": 9090}}))
    vm = vms.driver.describe(vms.namespace.until_phase("db", "Running"))
    vms.until_ticking(vm)
    stays(
        "it is not ready",
        lambda: condition(vms.namespace.pod("db"), "Ready").get("status") == "False",
        during=3,
    )
    vms.namespace.apply(vms.pod("tcp", vm="db", ports=[8080, 9090], ready={"tcp": 8080}))
    vms.until_ready("tcp")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no kernel": ({"kernel": None, "initrd": None, "commandLine": None}, "kernel: a VM needs a kernel or at least one disk to boot from"),
    "kernel is not there": ({"kernel": "/guest/none"}, "kernel: there is no file /guest/none"),
    "memory above maximum": ({"memory": "2Gi"}, "memory: 2048Mi is more than maxMemory (1024Mi)"),
    "unknown key": ({"memroy": "1Gi"}, "memroy: there is no such key"),
    "not a quantity": ({"memory": "lots"}, "memory: 'lots' is not a quantity such as 2, 500m or 8Gi"),
    "disk is not there": ({"disks": [{"path": "/disks/none.qcow2"}]}, "disks.0.path: there is no file /disks/none.qcow2"),
}  # fmt: skip


def test_a_bad_configuration_gets_one_sentence(vms: Vms) -> None:
    vms.give_certificate("bad")
    names = {case: f"bad-{index}" for index, case in enumerate(BAD)}
    vms.namespace.apply(*(vms.pod(names[case], vm="bad", **config) for case, (config, _) in BAD.items()))
    for case, (_, sentence) in BAD.items():
        pod = vms.namespace.until_phase(names[case], "Failed")
        assert exit_code(pod) == 2, case
        assert vms.namespace.kubectl("logs", names[case]) == f"elbowroom-runner: {sentence}\n", case


def test_a_vm_without_its_certificate_says_so(vms: Vms, namespace: Namespace) -> None:
    description = vms.pod("db")
    runner = description["spec"]["containers"][0]
    description["spec"]["volumes"][0] = {"name": "certificate", "emptyDir": {}}
    runner["volumeMounts"][0].pop("readOnly")
    namespace.apply(description)
    pod = namespace.until_phase("db", "Failed")
    assert exit_code(pod) == 2
    log = namespace.kubectl("logs", "db")
    assert log.startswith("elbowroom-runner: the certificate in /etc/elbowroom/tls cannot be read: ")
    assert len(log.splitlines()) == 1


def test_the_example_works_as_it_is_written(vms: Vms) -> None:
    """Only where its kernel is differs: on this machine it is in the cache."""
    pod, service = yaml.safe_load_all((ROOT / "examples" / "vm.yaml").read_text())
    guest = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "guest")
    guest["hostPath"]["path"] = str(GUEST)
    vms.give_certificate("db")
    vms.namespace.apply(pod, service)
    vm = vms.until_ready("db")
    address = vms.namespace.kubectl("get", "service", "db", "-o", "jsonpath={.spec.clusterIP}")
    until("its Service answers", lambda: vms.ask(f"http://{address}/", seconds=0.5)[0] == 200)
    assert vm.movable


def test_deleting_the_pod_shuts_the_guest_down(vms: Vms) -> None:
    vm = vms.boot("db")
    log = vms.last_words(vm, within=20)
    assert "guest powers off" in log
    assert '"detail": "the guest has shut down"' in log


def test_a_guest_that_does_not_listen_is_stopped_in_time(vms: Vms) -> None:
    """A guest that has panicked does not care for its power button."""
    vm = vms.boot("db", guest=Guest(extra="panic=0"), shutdownSeconds=2)
    vms.tell_guest(vm, "panic")
    until("it is known to have panicked", lambda: vms.status(vm).state is GuestState.PANICKED)
    log = vms.last_words(vm, within=20)
    assert '"detail": "the guest did not shut down in time and was stopped"' in log


def test_a_guest_that_shuts_itself_down_ends_its_pod(vms: Vms) -> None:
    vm = vms.boot("db")
    vms.tell_guest(vm, "poweroff")
    pod = vms.namespace.until_phase("db", "Succeeded")
    assert exit_code(pod) == 0
    assert '"detail": "the guest shut itself down"' in vms.log("db")


def test_a_dead_qemu_fails_the_pod(vms: Vms) -> None:
    vm = vms.boot("db")
    vms.signal_qemu(vm, signal.SIGKILL)
    pod = vms.namespace.until_phase("db", "Failed")
    assert exit_code(pod) == 1
    assert "QEMU ended by signal SIGKILL, and the guest with it" in vms.log("db")


def counted(vms: Vms, vm: VirtualMachine) -> dict[str, float]:
    """Return what a runner tells Prometheus, by the names and labels."""
    status, text = vms.ask(f"http://{vm.address}:8081/metrics", seconds=5)
    assert status == 200
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_a_reset_is_reported(vms: Vms) -> None:
    vm = vms.boot("db")
    vms.tell_guest(vm, "reset")

    def reset() -> bool:
        return any(incident.kind is IncidentKind.RESET for incident in vms.status(vm).incidents)

    until("the reset is known", reset)
    vms.until_ready("db")
    assert counted(vms, vm)['elbowroom_runner_incidents_total{kind="GuestReset"}'] >= 1


def test_the_death_of_the_agent_is_not_the_guests(vms: Vms) -> None:
    vm = vms.boot("db")
    vms.kill_agent(vm)
    status = vms.until_answering(vm)
    assert status.state is GuestState.RUNNING
    assert [incident.kind for incident in status.incidents] == [IncidentKind.RUNNER_RESTART]
    vms.until_ticking(vm)
    assert_whole([vms.ticks(vm)])


def test_the_death_of_the_pods_first_process_leaves_nothing_running(vms: Vms) -> None:
    vm = vms.boot("db")
    qemu = vms.qemu_process(vm)
    started = start_time(str(qemu))
    os.kill(vms.first_process(vm), signal.SIGKILL)
    vms.namespace.until_phase("db", "Failed")
    until("its QEMU is gone", lambda: start_time(str(qemu)) != started)


def test_grow_move_grow_and_shrink(vms: Vms) -> None:
    vm = vms.boot("db", node="node-1")
    at_boot = vms.until_tick(vm, lambda tick: tick.cpus == 1)
    size = vms.run(vms.driver.resize(vm, cpus=2, memory=BASE + 128 * MIB, order=8))
    assert (size.cpus, size.memory) == (2, BASE + 128 * MIB)
    vms.until_tick(vm, lambda tick: tick.cpus == 2 and tick.memory_mib >= at_boot.memory_mib + 120)
    receiver, _ = vms.move(vm, node="node-2")
    size, _ = vms.run(vms.driver.guest(receiver))
    assert (size.cpus, size.memory) == (2, BASE + 128 * MIB)
    told = counted(vms, receiver)
    assert (told["elbowroom_runner_cpus"], told["elbowroom_runner_memory_bytes"]) == (2, BASE + 128 * MIB)
    assert told['elbowroom_runner_guest{state="Running"}'] == 1
    # What was ordered before comes late, and is refused by the pod that the guest has moved to as well.
    assert vms.refused(vms.driver.resize(receiver, cpus=1, memory=BASE, order=7)) == (
        "StaleAttempt",
        "order 7 comes late: 8 has come already",
    )
    size = vms.run(vms.driver.resize(receiver, cpus=3, memory=BASE + 256 * MIB, order=9))
    assert (size.cpus, size.memory) == (3, BASE + 256 * MIB)
    vms.until_tick(receiver, lambda tick: tick.cpus == 3 and tick.memory_mib >= at_boot.memory_mib + 240)
    size = vms.run(vms.driver.resize(receiver, cpus=1, memory=BASE, order=9))
    assert (size.cpus, size.memory) == (1, BASE)
    vms.until_tick(receiver, lambda tick: tick.cpus == 1 and tick.memory_mib <= at_boot.memory_mib + 8)
    assert_whole([vms.ticks(vm), vms.ticks(receiver)])
    shape = vms.status(receiver).shape
    assert shape is not None
    if shape.accelerator == "tcg":
        # QEMU's own limit, told before anything is touched.
        until("the obstacle is known", lambda: vms.status(receiver).obstacle)
        reason, sentence = vms.refused(vms.driver.prepare(receiver, receiver, 9, QUICK))
        assert reason == "NotMovable"
        assert sentence.startswith("a vCPU was unplugged")
    else:
        vms.move(receiver, node="node-1")


def test_the_answer_is_what_the_guest_has(vms: Vms) -> None:
    """A guest that does not bring up its new vCPU, and one that is asked for the impossible."""
    vm = vms.boot("db", guest=Guest(extra="guest.ignore_cpus=1"))
    size = vms.run(vms.driver.resize(vm, cpus=2))
    assert size.cpus == 1
    for call, sentence in {
        "cpus": ({"cpus": 9}, "cpus: 9 is not between 1, which the guest booted with, and maxCpus (4)"),
        "memory": ({"memory": 8 << 30}, "memory: 8192Mi is not between 128Mi, which the guest booted with, and maxMemory (1024Mi)"),
    }.values():  # fmt: skip
        assert vms.refused(vms.driver.resize(vm, **call)) == ("Invalid", sentence)


def exit_code(pod: Json) -> int:
    return int(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])
