"""VM pods of a test, and moves of their guests by the shipped driver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import aiohttp
import pytest
import yaml
from elbowroom.authority.certificates import Authority, issue_operator, issue_vm, new_authority_pair
from elbowroom.authority.keeper import client_context
from elbowroom.core.world import TransferState
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.interface import RefusedError, Transfer, TransferLimits, UnreachableError, VirtualMachine
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.runner.tls import Identity
from qemu.qmp import QMPClient

from .console import Console, Tick, ticks
from .processes import command_line, processes
from .testbed import KUBECTL, ROOT, RUNNER_IMAGE, run
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from elbowroom.authority.certificates import KeyPair
    from elbowroom.runner.messages import Message, Outgoing, Status

    from .inside import Inside
    from .namespace import Json, Namespace

GUEST = ROOT / ".cache" / "guest"
MIB = 1 << 20
T = TypeVar("T")
OVER = frozenset(
    (TransferState.SUCCEEDED, TransferState.CANCELLED, TransferState.FAILED, TransferState.DAMAGED, TransferState.LOST)
)
# What moves in a test get when the test is not about limits: enough for a guest that dirties 20 MB/s.
QUICK = TransferLimits(bandwidth=256 * MIB, timeout_seconds=60, switch_over_seconds=30)


@dataclass(frozen=True)
class Guest:
    """What a test guest does, as its kernel's command line says it."""

    dirty_mb_per_s: int = 0
    working_set_mib: int = 16
    tick_ms: int = 20
    disk: str | None = None
    extra: str = ""
    """More words for the command line; the last one of a kind counts."""

    def command_line(self) -> str:
        """Return the command line."""
        options = {
            "dirty_mb_per_s": self.dirty_mb_per_s,
            "working_set_mib": self.working_set_mib,
            "tick_ms": self.tick_ms,
        }
        if self.disk:
            options["disk"] = self.disk  # type: ignore[assignment]
        words = [f"guest.{key}={value}" for key, value in options.items()]
        return " ".join(
            [
                "console=ttyS0 quiet panic=-1 mitigations=off memhp_default_state=online_movable swiotlb=512",
                *words,
                self.extra,
            ]
        )


QUIET = Guest()


class InPod(Protocol):
    """Whatever is in a pod and has a guest."""

    @property
    def pod(self) -> str:
        """The pod's name."""


class Vms:
    """The VMs of one test's namespace."""

    def __init__(self, namespace: Namespace, inside: Inside, authority: Authority) -> None:
        """Take a namespace and a place from where pods can be called."""
        self.namespace, self._inside, self.authority = namespace, inside, authority
        self.driver = self.driver_with(issue_operator(authority, datetime.now(UTC)))
        self.attempts: dict[str, int] = {}

    def driver_with(self, pair: KeyPair, authority: Authority | None = None) -> QemuDriver:
        """Return a driver that shows a certificate of its own."""
        context = client_context(pair, authority or self.authority)
        return QemuDriver(RunnerClient(lambda: context, tries=2))

    # Making them

    def give_certificate(self, vm: str) -> None:
        """Make the Secret that a VM's pods mount."""
        pair = issue_vm(self.authority, Identity(self.namespace.name, vm), datetime.now(UTC))
        content = {"ca.crt": self.authority.bundle(), "tls.crt": pair.certificate, "tls.key": pair.key}
        self.namespace.apply(
            {
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"elbowroom-vm-{vm}"},
                "data": {key: b64encode(value).decode() for key, value in content.items()},
            }
        )  # fmt: skip

    def pod(
        self,
        name: str,
        *,
        vm: str | None = None,
        node: str | None = None,
        guest: Guest = QUIET,
        capabilities: tuple[str, ...] = (),
        **config: Any,
    ) -> Json:
        """Describe a VM's pod; `config` is what its runner reads."""
        vm = vm or name
        settings = {
            "kernel": "/guest/vmlinuz", "initrd": "/guest/initrd", "commandLine": guest.command_line(), "cpus": 1, "maxCpus": 4,
            "memory": "128Mi", "maxMemory": "1Gi", "ports": [8080], "ready": {"http": {"port": 8080}}, **config,
        }  # fmt: skip
        settings = {key: value for key, value in settings.items() if value is not None}
        disks = {str(Path(disk["path"]).parent) for disk in settings.get("disks", ())}
        volumes = [
            {"name": "certificate", "secret": {"secretName": f"elbowroom-vm-{vm}"}},
            {"name": "guest", "hostPath": {"path": str(GUEST)}},
            *({"name": f"disk{index}", "hostPath": {"path": path}} for index, path in enumerate(sorted(disks))),
        ]
        mounts = [
            {"name": "certificate", "mountPath": "/etc/elbowroom/tls", "readOnly": True},
            {"name": "guest", "mountPath": "/guest", "readOnly": True},
            *({"name": f"disk{index}", "mountPath": path} for index, path in enumerate(sorted(disks))),
        ]
        container = {
            "name": "runner", "image": RUNNER_IMAGE, "command": ["elbowroom-runner"],
            "env": [{"name": "ELBOWROOM_VM", "value": yaml.safe_dump(settings)}],
            "resources": {"requests": {"cpu": "200m", "memory": "280Mi"}, "limits": {"memory": "1400Mi"}},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1, "failureThreshold": 1},
            "livenessProbe": {"httpGet": {"path": "/livez", "port": 8081}, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 10},
            "volumeMounts": mounts,
        }  # fmt: skip
        if capabilities:
            container["securityContext"] = {"capabilities": {"add": list(capabilities)}}
        spec: Json = {
            "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30,
            "containers": [container], "volumes": volumes,
        }  # fmt: skip
        if node:
            spec["nodeName"] = node
        labels = {"elbowroom.dev/vm": vm, "elbowroom.dev/movable": "true"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}

    def boot(self, name: str, *, node: str | None = None, guest: Guest = QUIET, **config: Any) -> VirtualMachine:
        """Start a VM and wait until its guest is up."""
        self.give_certificate(name)
        self.namespace.apply(self.pod(name, node=node, guest=guest, **config))
        return self.until_ready(name)

    def until_ready(self, pod: str, *, within: float = 90) -> VirtualMachine:
        """Wait until a VM's pod is ready."""
        try:
            return self.driver.describe(self.namespace.until_ready(pod, within=within))
        except AssertionError as error:
            error.add_note(self.log(pod)[-3000:])
            raise

    def log(self, pod: str) -> str:
        """Return a pod's log, with times."""
        core, namespace = self.namespace.core, self.namespace.name
        return str(core.read_namespaced_pod_log(pod, namespace, container="runner", timestamps=True))

    @contextmanager
    def followed(self, pod: str) -> Iterator[Callable[[], str]]:
        """Keep a pod's log, with times, beyond the pod's end; what is yielded returns it then."""
        command = [str(KUBECTL), "-n", self.namespace.name, "logs", "-f", "--timestamps", "-c", "runner", pod]
        env = {**os.environ, "KUBECONFIG": str(self.namespace.testbed.kubeconfig)}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as reader:
            try:
                yield lambda: reader.communicate(timeout=20)[0]
            finally:
                reader.kill()

    def story(self, pod: str) -> str:
        """Return the end of a pod's log without the guest's lines."""
        lines = [line for line in self.log(pod).splitlines() if " guest n=" not in line]
        return "\n".join(lines[-40:])

    def ticks(self, vm: InPod) -> Console:
        """Return what the guest has said in this pod."""
        return ticks(self.log(vm.pod))

    def until_ticking(self, vm: InPod, *, more: int = 25, within: float = 30) -> Console:
        """Wait until the guest has counted on in this pod."""
        first = len(self.ticks(vm))

        def probe() -> Console:
            found = self.ticks(vm)
            assert len(found) >= first + more, f"{len(found) - first} of {more} lines"
            return found

        return until(f"the guest counts on in {vm.pod}", probe, within=within)

    # Talking to them

    def status(self, vm: VirtualMachine, *, after: int = -1, wait: float = 0) -> Status:
        """Ask a VM's runner."""
        return self.run(self.driver._status(vm, after=after, wait=wait))  # noqa: SLF001

    def call(self, vm: VirtualMachine, name: str, message: Message, driver: QemuDriver | None = None) -> None:
        """Make one call to a VM's runner."""
        self.run((driver or self.driver)._call(vm, name, message))  # noqa: SLF001

    def run(self, work: Coroutine[Any, Any, T], *, within: float = 60) -> T:
        """Run something where the operator stands."""
        return self._inside.run(work, within=within)

    def refused(self, work: Coroutine[Any, Any, object]) -> tuple[str, str]:
        """Make a call that has to be refused, and return the reason and the sentence."""
        with pytest.raises(RefusedError) as refusal:
            self.run(work)
        return refusal.value.reason, str(refusal.value)

    def until_answering(self, vm: VirtualMachine) -> Status:
        """Wait until a runner answers again."""

        def probe() -> Status:
            try:
                return self.status(vm)
            except UnreachableError as error:
                raise AssertionError(error) from error

        return until(f"the runner of {vm.pod} answers", probe)

    def until_tick(self, vm: VirtualMachine, wanted: Callable[[Tick], bool], *, within: float = 30) -> Tick:
        """Wait until the guest says something in particular."""

        def probe() -> Tick:
            found = self.ticks(vm)
            assert found, "nothing yet"
            assert wanted(found[-1]), found[-1]
            return found[-1]

        return until("the guest says what is waited for", probe, within=within)

    # What happens to them

    def tell_guest(self, vm: VirtualMachine, what: str) -> None:
        """Have the guest do something to itself."""

        async def post() -> None:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
                with suppress(aiohttp.ClientError, TimeoutError):  # a guest that is dying does not answer
                    await session.post(f"http://{vm.address}:8080/{what}")

        self.run(post())

    def ask(self, url: str, *, seconds: float) -> tuple[int, str]:
        """Ask an HTTP server in the cluster; nothing but a status of 0 when it does not answer in time."""

        async def get() -> tuple[int, str]:
            connector = aiohttp.TCPConnector(force_close=True)
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                try:
                    async with session.get(url) as answer:
                        return answer.status, await answer.text()
                except (aiohttp.ClientError, TimeoutError):
                    return 0, ""

        return self.run(get())

    def until_gone(self, vm: VirtualMachine) -> None:
        """Wait until a receiver has ended: by itself, or because its source told it to, whichever was faster."""

        def probe() -> str:
            phase = str(self.namespace.pod(vm.pod)["status"]["phase"])
            assert phase in ("Succeeded", "Failed"), phase
            return phase

        until(f"the receiver {vm.pod} has ended", probe)

    def discard(self, vm: VirtualMachine) -> None:
        """Delete a pod that has no guest any more."""
        self.namespace.core.delete_namespaced_pod(vm.pod, self.namespace.name, grace_period_seconds=1)

    def exec(self, vm: InPod, *command: str, check: bool = True) -> str:
        """Run a program in a VM's pod."""
        try:
            return self.namespace.kubectl("exec", vm.pod, "--", *command)
        except AssertionError:
            if check:
                raise
            return ""

    def kill_agent(self, vm: VirtualMachine) -> None:
        """Kill a runner's agent, which does not expect it."""
        self.signal_agent(vm, signal.SIGKILL)

    def signal_qemu(self, vm: VirtualMachine, number: int) -> None:
        """Send QEMU a signal."""
        os.kill(self.qemu_process(vm), number)

    def qemu_process(self, vm: InPod) -> int:
        """Return the process that runs, or receives, the guest in a pod, by this machine's numbers."""
        return self._process(vm, "qemu-system-x86_64")

    def first_process(self, vm: VirtualMachine) -> int:
        """Return the pod's first process, by this machine's numbers."""
        return self._process(vm, "elbowroom-runner")

    def _process(self, vm: InPod, program: str) -> int:
        inside = self.exec(vm, "readlink", "/proc/self/ns/pid").strip()
        for process in processes():
            words = command_line(process.name).split()[:3]
            try:
                if any(word.endswith(program) for word in words) and str((process / "ns" / "pid").readlink()) == inside:
                    return int(process.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        message = f"no {program} runs in {vm.pod}"
        raise AssertionError(message)

    def signal_agent(self, vm: VirtualMachine, number: int) -> None:
        """Send a runner's agent a signal."""
        os.kill(self._process(vm, "elbowroom.runner.agent"), number)

    def close_connections(self, vm: VirtualMachine, port: int) -> None:
        """Have the kernel close a pod's connections to a port, as a firewall does that has had enough."""
        process = str(self.qemu_process(vm))
        run("nsenter", "-t", process, "-n", "ss", "-K", "dport", "=", f":{port}")

    def force_switch_over(self, vm: VirtualMachine) -> None:
        """Have QEMU switch over as if it had come to it by itself: behind the back of an agent that is away."""
        parent, agent = self.first_process(vm), self._process(vm, "elbowroom.runner.agent")
        monitor = f"/proc/{self.qemu_process(vm)}/root/run/elbowroom/monitor.sock"
        os.kill(parent, signal.SIGSTOP)  # so that it starts no other agent
        os.kill(agent, signal.SIGKILL)

        async def push() -> None:
            client = QMPClient("test")
            await client.connect(monitor)
            high = {"max-bandwidth": 1 << 30, "downtime-limit": 1000, "avail-switchover-bandwidth": 1 << 30}
            await client.execute("migrate-set-parameters", high)
            while (await client.execute("query-migrate"))["status"] != "pre-switchover":  # type: ignore[index]  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # QEMU's events are for its agent
            await client.disconnect()

        try:
            asyncio.run(asyncio.wait_for(push(), 10))
        finally:
            os.kill(parent, signal.SIGCONT)

    def last_words(self, vm: VirtualMachine, *, within: float) -> str:
        """Delete a pod, and return its log up to the end."""
        follow = [str(KUBECTL), "-n", self.namespace.name, "logs", "-f", vm.pod]
        env = {**os.environ, "KUBECONFIG": str(self.namespace.testbed.kubeconfig)}
        with subprocess.Popen(follow, env=env, stdout=subprocess.PIPE, text=True) as reader:
            self.namespace.kubectl("delete", "pod", vm.pod, "--wait=false")
            self.namespace.until_gone(vm.pod, within=within)
            return reader.communicate(timeout=10)[0]

    # Moving them

    def next_attempt(self, vm: VirtualMachine) -> int:
        """Return a number that is higher than any before."""
        self.attempts[vm.name] = max(self.attempts.get(vm.name, 0), vm.attempt) + 1
        return self.attempts[vm.name]

    def receiver(self, source: VirtualMachine, attempt: int, *, node: str | None = None) -> VirtualMachine:
        """Make a receiver's pod and wait until it can be called."""
        found = self.namespace.pod(source.pod)
        name = f"{source.name}-{attempt}"
        self._create(self.driver.receiver_pod(found, name=name, attempt=attempt, node=node))

        return self.until_callable(name)

    def _create(self, pod: Json) -> None:
        self.namespace.core.create_namespaced_pod(self.namespace.name, pod)  # type: ignore[arg-type]  # JSON will do

    def until_callable(self, pod: str) -> VirtualMachine:
        """Wait until a receiver's runner answers."""

        def probe() -> VirtualMachine:
            described = self.driver.describe(self.namespace.pod(pod))
            try:
                self.status(described)
            except UnreachableError as error:
                raise AssertionError(error) from error
            return described

        return until(f"the receiver {pod} answers", probe, within=40)

    def receivers_ahead(self, vm: VirtualMachine, count: int) -> Iterator[tuple[int, VirtualMachine]]:
        """Make receivers for many attempts, some of them ahead, so that nobody waits for a pod to start."""
        description = self.namespace.pod(vm.pod)
        first = self.next_attempt(vm)
        self.attempts[vm.name] += count
        made: list[str] = []
        for attempt in range(first, first + count):
            while len(made) < min(attempt - first + 4, count):
                number = first + len(made)
                receiver = self.driver.receiver_pod(description, name=f"{vm.name}-{number}", attempt=number)
                receiver["spec"].pop("affinity")  # where its source will be by then is not known yet
                self._create(receiver)
                made.append(receiver["metadata"]["name"])
            yield attempt, self.until_callable(made[attempt - first])

    def race(self, source: VirtualMachine, attempt: int, *, head_start: float) -> str:
        """Commit and cancel at the same time, the one or the other a little earlier; return what was granted."""

        async def after(seconds: float, work: Coroutine[Any, Any, object]) -> str:
            await asyncio.sleep(max(0.0, seconds))
            try:
                await work
            except RefusedError as refusal:
                return refusal.reason
            return "granted"

        async def both() -> tuple[str, str]:
            commit = after(-head_start, self.driver.commit(source, attempt))
            cancel = after(head_start, self.driver.cancel(source, None, attempt))
            committed, cancelled = await asyncio.gather(commit, cancel)
            return committed, cancelled

        outcome = self.run(both())
        assert outcome in (("granted", "Committed"), ("Cancelled", "granted")), outcome
        return "committed" if outcome[0] == "granted" else "cancelled"

    def prepare(
        self, source: VirtualMachine, limits: TransferLimits = QUICK, *, node: str | None = None
    ) -> tuple[VirtualMachine, int]:
        """Make a receiver that waits for the guest."""
        attempt = self.next_attempt(source)
        receiver = self.receiver(source, attempt, node=node)
        self.run(self.driver.prepare(source, receiver, attempt, limits))
        return receiver, attempt

    def until(
        self,
        source: VirtualMachine,
        receiver: VirtualMachine | None,
        attempt: int,
        *wanted: TransferState,
        within: float = 60,
    ) -> Transfer:
        """Wait, by news and not by polling, until a move is in one of these states."""
        end = time.monotonic() + within
        seen = self.run(self.driver.observe(source, receiver, attempt))
        while seen.state not in wanted:
            left = end - time.monotonic()
            if left <= 0 or seen.state in OVER:
                error = AssertionError(f"not within {within:g} s: {wanted}; last seen: {seen}")
                for side in (source, receiver):
                    if side is not None:
                        error.add_note(f"{side.pod}: {self.story(side.pod)}")
                raise error
            seen = self.run(self.driver.observe(source, receiver, attempt, after=seen.revision, wait=min(left, 0.5)))
        return seen

    def close(self) -> None:
        """Give the driver's connections back."""
        self.run(self.driver._client.close())  # noqa: SLF001

    def until_over(self, vm: VirtualMachine) -> Outgoing:
        """Wait until a runner's own view of its move is that it is over."""

        def probe() -> Outgoing:
            outgoing = self.status(vm).outgoing
            assert outgoing is not None
            assert outgoing.phase.over, outgoing
            return outgoing

        return until(f"the move from {vm.pod} is over", probe)

    def move(
        self, source: VirtualMachine, limits: TransferLimits = QUICK, *, node: str | None = None
    ) -> tuple[VirtualMachine, Transfer]:
        """Move a guest as the operator will: prepare, start, commit at the brink, retire the source."""
        receiver, attempt = self.prepare(source, limits, node=node)
        self.run(self.driver.start(source, receiver, attempt, limits))
        self.until(source, receiver, attempt, TransferState.AT_BRINK, within=limits.timeout_seconds)
        self.run(self.driver.commit(source, attempt))
        self.until(source, receiver, attempt, TransferState.SUCCEEDED)
        until("the source has heard of it", lambda: self.until_over(source).phase == "Released")
        seen = self.run(self.driver.observe(source, receiver, attempt))
        self.run(self.driver.retire(source, attempt))
        return receiver, seen


def new_authority() -> Authority:
    """Make an authority for a test."""
    return Authority((new_authority_pair(datetime.now(UTC)),))
