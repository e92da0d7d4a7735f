"""The agent's life: start or take over, serve, stop.

It may be killed at any time: the guest runs on, and its successor goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from elbowroom.traces import NotInstalledError, teller

from . import logs
from .calls import Calls
from .command import Paths
from .config import ConfigError
from .machine import End, Machine
from .monitor import MonitorError, TooOldError
from .options import STATE, Options
from .peer import Peer
from .process import choose_accelerator
from .service import Service
from .tls import CertificateError, Files

log = logging.getLogger(__name__)
CANNOT_START = 2
CRASHED = 70
"""The exit code that asks for another agent; every other one is the pod's end."""


async def run(options: Options) -> int:
    """Serve until the guest, or the pod, has come to its end."""
    config = options.load_config()
    files = Files(options.certificates)
    identity = files.identity()
    paths = Paths(options.state)
    peer = Peer(files, identity, paths.credentials)
    traces = teller("elbowroom-runner")
    machine = Machine(config, identity, paths, peer, receiving=options.receiving, traces=traces)
    calls = Calls(machine)
    service = Service(machine, calls, files)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await machine.open()
        await service.open()  # not before all is known: half an answer is a wrong one
        if options.stopping:
            stop.set()
        end = await _until_end(machine, calls, stop, config.shutdown_seconds)
    finally:
        await service.close()
        await machine.close()
        await peer.close()
        await asyncio.to_thread(traces.close)
    log.info("ends", extra={"detail": end.message, "exit_code": end.code})
    return end.code


async def _until_end(machine: Machine, calls: Calls, stop: asyncio.Event, shutdown_seconds: float) -> End:
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait((asked, machine.finished), return_when=asyncio.FIRST_COMPLETED)
    if machine.finished.done():
        asked.cancel()
        return machine.finished.result()
    return await calls.stop(shutdown_seconds)


def prepare(options: Options) -> None:
    """Check what can be checked before anything is started."""
    choose_accelerator(options.load_config().accelerator)
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A volume is root's, and the kubelet has seen to it that we may write: nobody else is in this pod's volume.
        if options.state.stat().st_uid == os.geteuid():
            options.state.chmod(0o700)
        elif not os.access(options.state, os.W_OK | os.X_OK):
            raise ConfigError(f"{STATE}: {options.state} cannot be written to by the user {os.geteuid()}")
    except OSError as error:
        raise ConfigError(f"{STATE}: {options.state} cannot be used: {error.strerror}") from error


def main() -> int:
    """Run the agent; its exit code tells the pod's first process what to do."""
    logs.set_up()
    try:
        options = Options.from_environment()
        prepare(options)
        return 0 if "--check" in sys.argv else asyncio.run(run(options))
    except (ConfigError, CertificateError, TooOldError, NotInstalledError) as error:
        sys.stderr.write(f"elbowroom-runner: {error}\n")
        return CANNOT_START
    except MonitorError as error:
        log.error("QEMU cannot be reached", extra={"error": str(error)})  # noqa: TRY400
        return CRASHED
    except Exception:  # whatever it was: the guest runs on, and the next agent looks with fresh eyes
        log.exception("the agent has failed")
        return CRASHED


if __name__ == "__main__":
    sys.exit(main())
