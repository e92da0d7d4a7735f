"""`elbowroom-runner`: the pod's first process.

It does next to nothing, so that nothing can go wrong with it: it starts the agent, starts another when that one dies,
passes on SIGTERM, and collects what has ended. QEMU is the agent's child and survives it; this process is what must
live.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType  # noqa: TC003  # small enough to import

_CANNOT_START, _CRASHED = 2, 70
_PR_SET_CHILD_SUBREAPER = 36
_CALM_SECONDS = 10.0
_AGENT = (sys.executable, "-m", "elbowroom.runner.agent")
_MOST_CRASHES = 5
_HELP = """usage: elbowroom-runner [--config FILE] [--check]

Runs one VM under QEMU, and moves and resizes it when the operator says so.

  --config FILE   the VM's configuration (YAML); or its text in ELBOWROOM_VM
  --check         check the configuration and end

ELBOWROOM_CERTIFICATES  folder with ca.crt, tls.crt and tls.key     /etc/elbowroom/tls
ELBOWROOM_STATE         folder of the runner's own                  /run/elbowroom
ELBOWROOM_RECEIVE       the attempt that this pod receives a guest for; unset, the guest boots here
"""


class Parent:
    """The agent's keeper."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._agent: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        """Keep an agent running until one says that it is over."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        crashes = 0
        while True:
            started = time.monotonic()
            code = self._run_agent()
            if 0 <= code != _CRASHED and not (code == _CANNOT_START and self._qemu_lives()):
                return code
            crashes = 1 if time.monotonic() - started > _CALM_SECONDS else crashes + 1
            how = f"was ended by signal {-code}" if code < 0 else f"failed with {code}"
            sys.stderr.write(
                f'{{"level": "ERROR", "logger": "parent", "message": "the agent {how}; starting another"}}\n'
            )
            if crashes > _MOST_CRASHES and not self._qemu_lives():
                sys.stderr.write("elbowroom-runner: the agent does not stay up, and no guest is left: giving up\n")
                return 1
            time.sleep(min(5.0, 0.05 * 2 ** min(crashes, 7)))

    def _run_agent(self) -> int:
        told = self._stopping
        env = {**os.environ, "ELBOWROOM_STOPPING": "1"} if told else None
        self._agent = subprocess.Popen(_AGENT, env=env)
        if self._stopping and not told:
            self._pass_on()  # SIGTERM came while the agent was being started
        while True:
            pid, status = os.wait()
            if pid == self._agent.pid:
                self._agent.returncode = os.waitstatus_to_exitcode(status)
                return self._agent.returncode

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        self._pass_on()

    def _pass_on(self) -> None:
        if self._agent is not None and self._agent.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._agent.pid, signal.SIGTERM)

    @staticmethod
    def _qemu_lives() -> bool:
        from .command import Paths  # noqa: PLC0415  # the agent's modules are only loaded where they are needed
        from .options import Options  # noqa: PLC0415
        from .process import start_time  # noqa: PLC0415
        from .record import RecordFile  # noqa: PLC0415

        record = RecordFile(Paths(Options.from_environment().state).record).load()
        return record is not None and record.qemu is not None and start_time(record.qemu.pid) == record.qemu.start_time


def main() -> int:
    """Read the arguments, and keep the agent running; it is the agent that checks the configuration."""
    words = sys.argv[1:]
    check = "--check" in words
    words = [word for word in words if word != "--check"]
    if words[:1] == ["--config"] and len(words) == len(("--config", "FILE")):
        os.environ["ELBOWROOM_VM_FILE"] = words[1]
        os.environ.pop("ELBOWROOM_VM", None)
    elif words:
        sys.stderr.write(_HELP)
        return 0 if words in (["-h"], ["--help"]) else 2
    os.umask(0o077)
    if check:
        return subprocess.run([*_AGENT, "--check"], check=False).returncode
    return Parent().run()
