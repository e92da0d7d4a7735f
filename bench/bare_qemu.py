"""The reference of bench/migration.py: the same QEMU and guest, moved by hand over QMP with nothing in between.

No runner, no commit point, no second look: two processes on this machine, TLS as in the product, and the destination
starts the guest by itself, as QEMU does when it is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elbowroom.runner.command import Paths, arguments, default_shape
from elbowroom.runner.config import parse
from qemu.qmp import ConnectError, QMPClient, QMPError
from support.console import Console, assert_whole, ticks

if TYPE_CHECKING:
    from pathlib import Path

    from elbowroom.runner.config import VMConfig
    from elbowroom.runner.tls import Files, Identity


@dataclass
class Bare:
    """One QEMU."""

    folder: Path
    config: VMConfig
    process: subprocess.Popen[bytes] = field(init=False)
    monitor: QMPClient = field(init=False)
    lines: list[str] = field(default_factory=list)

    async def start(self, *, incoming: bool) -> None:
        """Start it, with a reader that notes when the guest says what."""
        self.folder.mkdir(parents=True)
        shape = default_shape(self.config, "tcg")
        command = arguments("bare", self.config, shape, Paths(self.folder), incoming=incoming)
        command = [word for word in command if word != "-S"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # noqa: ASYNC220
        threading.Thread(target=self._read, daemon=True).start()
        self.monitor = QMPClient("bare")
        end = time.monotonic() + 20
        while True:
            try:
                await self.monitor.connect(str(self.folder / "monitor.sock"))
            except ConnectError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.02)
            else:
                return

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f"{now % 1:.9f}"[1:] + "Z"
            self.lines.append(f"{stamp} {line.decode(errors='replace').rstrip()}")

    def ticks(self) -> Console:
        """Return what the guest has said."""
        return ticks("\n".join(self.lines))

    async def until_ticking(self, count: int = 30) -> None:
        """Wait until the guest says something."""
        end = time.monotonic() + 60
        while len(self.ticks()) < count:
            assert time.monotonic() < end, "the bare guest does not count"
            await asyncio.sleep(0.05)

    async def run(self, command: str, **arguments: Any) -> Any:
        """Have QEMU do something."""
        return await self.monitor.execute(command, {key.replace("_", "-"): value for key, value in arguments.items()})

    async def end(self) -> None:
        """End it."""
        with contextlib.suppress(QMPError, EOFError, OSError):
            await self.run("quit")
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
        with contextlib.suppress(QMPError, EOFError, OSError):
            await self.monitor.disconnect()


@dataclass
class BareGuest:
    """A guest that is moved by hand, again and again."""

    folder: Path
    files: Files
    identity: Identity
    settings: str
    moves: int = 0
    current: Bare = field(init=False)

    async def boot(self) -> None:
        """Boot it."""
        self.files.for_qemu(self.folder / "tls")
        self.current = Bare(self.folder / "0", parse(self.settings.replace("PORT", "0")))
        await self.current.start(incoming=False)
        await self.current.until_ticking()

    async def move(self, bandwidth: int, downtime_ms: int) -> tuple[float, float, float]:
        """Move it; return milliseconds in all, of downtime as QEMU says, and of silence on the console."""
        self.moves += 1
        target = Bare(self.folder / str(self.moves), self.current.config)
        await target.start(incoming=True)
        port = 20000 + self.moves
        for side, endpoint in ((self.current, "client"), (target, "server")):
            await side.run("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
            name = f"tls-{self.moves}"
            await side.monitor.execute(
                "object-add", {"qom-type": "tls-creds-x509", "id": name, "endpoint": endpoint, "verify-peer": True,
                "dir": str(self.folder / "tls")},
            )  # fmt: skip
            await side.run("migrate-set-parameters", tls_creds=name, tls_hostname=self.identity.host)
        await self.current.run("migrate-set-parameters", max_bandwidth=bandwidth, downtime_limit=downtime_ms)
        await target.run("migrate-incoming", uri=f"tcp:127.0.0.1:{port}")
        began = time.monotonic()
        with target.monitor.listener("RESUME") as resumed:
            await self.current.run("migrate", uri=f"tcp:127.0.0.1:{port}")
            async with asyncio.timeout(120):
                await resumed.get()
        total = (time.monotonic() - began) * 1000
        info = await self._figures()
        await target.until_ticking(20)
        silence = (target.ticks()[0].at - self.current.ticks()[-1].at) * 1000
        assert_whole([self.current.ticks(), target.ticks()])
        await self.current.end()
        self.current = target
        return total, float(info["downtime"]), silence

    async def _figures(self) -> dict[str, Any]:
        end = time.monotonic() + 10
        while True:
            info: dict[str, Any] = await self.current.run("query-migrate")
            if info["status"] == "completed" and "downtime" in info:
                return info
            assert time.monotonic() < end, info
            await asyncio.sleep(0.005)
