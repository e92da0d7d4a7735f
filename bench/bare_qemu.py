"""The reference of bench/migration.py: the same QEMU, guest, pods and network, moved by hand over QMP.

No runner, no commit point, no second look: QEMU is the pod's only process, TLS is as in the product, and the
destination starts the guest by itself, as QEMU does when it is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elbowroom.runner.command import Paths, arguments, default_shape
from elbowroom.runner.config import parse
from qemu.qmp import ConnectError, QMPClient, QMPError
from support.console import assert_whole, gap
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from elbowroom.runner.tls import Files, Identity
    from support.namespace import Json
    from support.vms import Vms

PORT = 8444


@dataclass
class Bare:
    """One QEMU, alone in its pod."""

    vms: Vms
    pod: str
    description: Json
    folder: Path
    monitor: QMPClient = field(init=False)

    async def start(self, *, incoming: bool) -> None:
        """Start it."""
        self.folder.mkdir(parents=True)
        container = self.description["spec"]["containers"][0]
        config = parse(container["env"][0]["value"])
        command = arguments("bare", config, default_shape(config, "tcg"), Paths(self.folder), incoming=incoming)
        container["command"] = [word for word in command if word != "-S"]
        for key in ("env", "readinessProbe", "livenessProbe"):
            del container[key]
        parent = str(self.folder.parent)
        container["volumeMounts"].append({"name": "bare", "mountPath": parent})
        self.description["spec"]["volumes"].append({"name": "bare", "hostPath": {"path": parent}})
        self.vms.give_certificate("bare")
        self.vms.namespace.apply(self.description)
        self.monitor = QMPClient("bare")
        end = time.monotonic() + 20
        while True:
            try:
                await self.monitor.connect(str(Paths(self.folder).monitor))
            except ConnectError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.02)
            else:
                return

    def address(self) -> str:
        """Return the pod's address."""

        def probe() -> str:
            address = self.vms.namespace.pod(self.pod)["status"].get("podIP")
            assert address, "no address yet"
            return str(address)

        return until(f"the pod {self.pod} has an address", probe)

    async def run(self, command: str, **arguments: Any) -> Any:
        """Have QEMU do something."""
        return await self.monitor.execute(command, {key.replace("_", "-"): value for key, value in arguments.items()})

    async def end(self) -> None:
        """End it."""
        with contextlib.suppress(QMPError, EOFError, OSError):
            await self.run("quit")
        with contextlib.suppress(QMPError, EOFError, OSError):
            await self.monitor.disconnect()
        self.vms.namespace.core.delete_namespaced_pod(self.pod, self.vms.namespace.name, grace_period_seconds=1)


@dataclass
class BareGuest:
    """A guest that is moved by hand, again and again."""

    vms: Vms
    folder: Path
    files: Files
    identity: Identity
    options: dict[str, Any]
    moves: int = 0
    current: Bare = field(init=False)

    def _next(self) -> Bare:
        name = f"bare-{self.moves}"
        node = f"node-{1 + self.moves % 2}"
        description = self.vms.pod(name, vm="bare", node=node, **self.options)
        return Bare(self.vms, name, description, self.folder / str(self.moves))

    async def boot(self) -> None:
        """Boot it."""
        self.folder.mkdir()
        self.files.for_qemu(self.folder / "tls")
        self.current = self._next()
        await self.current.start(incoming=False)
        self.vms.until_ticking(self.current, more=30, within=60)

    async def move(self, bandwidth: int, downtime_ms: int) -> tuple[float, float, float]:
        """Move it; return milliseconds in all, of downtime as QEMU says, and of silence on the console."""
        self.moves += 1
        target = self._next()
        await target.start(incoming=True)
        for side, endpoint in ((self.current, "client"), (target, "server")):
            await side.run("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
            name = f"tls-{self.moves}"
            await side.monitor.execute(
                "object-add", {"qom-type": "tls-creds-x509", "id": name, "endpoint": endpoint, "verify-peer": True,
                "dir": str(self.folder / "tls")},
            )  # fmt: skip
            await side.run("migrate-set-parameters", tls_creds=name, tls_hostname=self.identity.host)
        await self.current.run("migrate-set-parameters", max_bandwidth=bandwidth, downtime_limit=downtime_ms)
        await target.run("migrate-incoming", uri=f"tcp:0.0.0.0:{PORT}")
        address = target.address()
        began = time.monotonic()
        with target.monitor.listener("RESUME") as resumed:
            await self.current.run("migrate", uri=f"tcp:{address}:{PORT}")
            async with asyncio.timeout(120):
                await resumed.get()
        total = (time.monotonic() - began) * 1000
        info = await self._figures()
        after = self.vms.until_ticking(target, more=20)
        before = self.vms.ticks(self.current)
        assert_whole([before, after])
        await self.current.end()
        self.current = target
        return total, float(info["downtime"]), gap(before, after)

    async def _figures(self) -> dict[str, Any]:
        end = time.monotonic() + 10
        while True:
            info: dict[str, Any] = await self.current.run("query-migrate")
            if info["status"] == "completed" and "downtime" in info:
                return info
            assert time.monotonic() < end, info
            await asyncio.sleep(0.005)
