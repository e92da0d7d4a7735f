"""`testbed up` and its end: side by side with others, and without a trace."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.namespace import IDLE, Namespace, Size, pod
from support.processes import alive, command_line, descendants, mentioning, processes
from support.testbed import BINARY, KUBECTL, PYTHON_IMAGE, Testbed, complete
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = 5.0


class Traces:
    """What a testbed shows of itself on the machine."""

    def __init__(self, testbed: Testbed) -> None:
        self.directory = testbed.directory
        # The name under which the testbed keeps its control socket and its cgroups, by the rule in docs/testbed.md.
        self.name = "elbowroom-testbed-" + hashlib.sha256(str(testbed.directory).encode()).hexdigest()[:12]
        self.processes = descendants(testbed.process.pid)
        supervisor = next(pid for pid, _ in self.processes if " supervise" in command_line(pid))
        self.namespaces = {
            kind: (Path("/proc") / supervisor / "ns" / kind).readlink() for kind in ("pid", "net", "mnt")
        }
        self.port = int(testbed.status()["server"].rsplit(":", 1)[1])

    def left(self) -> dict[str, list[str]]:
        """Return what is still there, by kind."""
        listening = f":{self.port:04X} 00000000:0000 0A"
        found = {
            "processes": alive(self.processes) + mentioning(str(self.directory)),
            "members of its namespaces": [entry.name for entry in processes() if self._inside(entry)],
            "mounts": lines_with("/proc/self/mountinfo", str(self.directory)),
            "unix sockets": lines_with("/proc/net/unix", str(self.directory)) + lines_with("/proc/net/unix", self.name),
            "listening ports": lines_with("/proc/net/tcp", listening),
            "socket files": [str(path) for path in files_below(self.directory) if path.is_socket()],
            "cgroups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{self.name}")],
            "state": [
                path.name for path in self.directory.iterdir() if path.name not in {"logs", ".elbowroom-testbed"}
            ],
        }
        return {kind: items for kind, items in found.items() if items}

    def _inside(self, process: Path) -> bool:
        try:
            return any((process / "ns" / kind).readlink() == name for kind, name in self.namespaces.items())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False


def files_below(folder: Path) -> Iterator[Path]:
    """Return all files, also while somebody is deleting them."""
    return (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)


def lines_with(file: str, text: str) -> list[str]:
    return [line for line in Path(file).read_text().splitlines() if text in line]


def busy(testbed: Testbed) -> None:
    """Give the testbed something to leave behind: a pod with mounts, a socket of its own and an orphan."""
    namespace = Namespace(testbed, "default")
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    socket = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('/work/sock'); s.listen(); print('up', flush=True); time.sleep(3600)"
    namespace.start(
        pod("busy", f"setsid sleep 3600 & {IDLE}", container=mount, volumes=[{"name": "work", "emptyDir": {}}]),
        pod(
            "server",
            ["python3", "-c", socket],
            image=PYTHON_IMAGE,
            container=mount,
            volumes=[{"name": "work", "emptyDir": {}}],
        ),
    )
    until("the server has its socket", lambda: "up" in namespace.kubectl("logs", "server"))


def test_sigkill_leaves_nothing_behind(tmp_path: Path) -> None:
    with Testbed(tmp_path / "bed", nodes=2) as second:
        busy(second)
        traces = Traces(second)
        seen = traces.left()
        assert {
            "processes",
            "members of its namespaces",
            "unix sockets",
            "listening ports",
            "cgroups",
            "socket files",
            "state",
        } <= seen.keys()
        assert len(traces.processes) > 10

        second.process.kill()

        def clean() -> bool:
            assert not traces.left(), traces.left()
            return True

        until("nothing of the testbed is left", clean, within=WITHIN)


def test_a_clean_stop_leaves_nothing_behind_either(tmp_path: Path) -> None:
    with Testbed(tmp_path / "bed", nodes=1) as second:
        busy(second)
        traces = Traces(second)
        assert "Stopped" in second.cli("down")
        assert second.process.wait(10) == 0
        assert not traces.left()
        assert "No testbed is running" in second.cli("down"), "down again is no error"


def test_testbeds_run_side_by_side(testbed: Testbed, tmp_path: Path) -> None:
    with Testbed(tmp_path / "bed", nodes=1) as second:
        assert second.status()["server"] != testbed.status()["server"]
        second.kubectl("create", "namespace", "only-in-the-second")
        assert "only-in-the-second" not in testbed.kubectl("get", "namespaces")
        refused = complete(BINARY, "up", "--dir", second.directory)
        assert refused.returncode == 1
        assert "is running in" in refused.stderr


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    refused = complete(BINARY, "up", "--dir", tmp_path)
    assert refused.returncode == 1
    assert "is not empty and not a testbed's" in refused.stderr
    assert (tmp_path / "precious").read_text() == "data"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--nodes", "-1"], "--nodes: -1 is not between 0 and 200"),
        (["--cpu", "1500m"], '--cpu: "1500m" is not a whole number of CPUs'),
        (["--memory", "lots"], '--memory: "lots" is not an amount of memory such as 8Gi'),
        (["--image", "name"], '--image: "name" is not NAME=FOLDER'),
        (["--image", "name=/no/such/folder"], "image name: /no/such/folder is not a folder"),
        (["--arg", "kubelet=--v=4"], '--arg: "kubelet" is not one of'),
        (["--node-grace", "1s"], "--node-grace: 1s is too short"),
    ],
)
def test_bad_input_gets_one_sentence(flags: list[str], sentence: str, tmp_path: Path) -> None:
    refused = complete(BINARY, "up", "--dir", tmp_path / "bed", *flags)
    assert refused.returncode == 1
    assert sentence in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_failure_at_the_start_is_told_with_the_last_log_lines(tmp_path: Path) -> None:
    failed = complete(BINARY, "up", "--dir", tmp_path / "bed", "--nodes", "0", "--arg", "kube-apiserver=--no-such-flag")
    assert failed.returncode == 1
    assert "kube-apiserver ended" in failed.stderr
    assert "its last log lines:" in failed.stderr
    assert "unknown flag: --no-such-flag" in failed.stderr


def test_a_failure_at_run_time_ends_the_testbed_with_a_sentence(tmp_path: Path) -> None:
    with Testbed(tmp_path / "bed", nodes=0) as second:
        etcd = next(pid for pid, _ in descendants(second.process.pid) if "etcd --name" in command_line(pid))
        os.kill(int(etcd), signal.SIGKILL)
        assert second.process.wait(10) == 1
    assert "etcd ended" in second.output
    assert "its last log lines:" in second.output


def test_detached(tmp_path: Path) -> None:
    directory = tmp_path / "bed"
    # The caller is gone when the command returns; the cluster stays.
    shown = complete(BINARY, "up", "--detach", "--nodes", "1", "--dir", directory, within=90)
    try:
        assert shown.returncode == 0, shown.stderr
        assert f"export KUBECONFIG={directory}/kubeconfig" in shown.stdout
        assert "node-1" in complete(KUBECTL, "get", "nodes", env={"KUBECONFIG": f"{directory}/kubeconfig"}).stdout
    finally:
        assert complete(BINARY, "down", "--dir", directory).returncode == 0


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with Testbed(tmp_path / "bed", nodes=0) as second:
        second.process.send_signal(signal.SIGINT)
        assert second.process.wait(10) == 0


def test_without_cgroups_sizes_are_recorded_and_reported(tmp_path: Path) -> None:
    # A machine whose cgroups cannot be written: an empty folder lies over them. `exec` keeps the process the same.
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$0" "$@"')
    with Testbed(tmp_path / "bed", nodes=1, through=hidden) as second:
        namespace = Namespace(second, "default")
        namespace.start(pod("measured", IDLE, cpu="1", memory="128Mi"))
        namespace.resize("measured", cpu="2", memory="256Mi")
        namespace.until_resized("measured", Size(2000, 256 * 2**20))
    assert "sizes are recorded and reported, not enforced" in second.output


def test_commands_say_when_there_is_no_testbed(tmp_path: Path) -> None:
    for command in (["status"], ["restart", "etcd"], ["node", "kill", "node-1"]):
        refused = complete(BINARY, *command, "--dir", tmp_path)
        assert (refused.returncode, refused.stderr) == (1, f"testbed: no testbed is running in {tmp_path}\n")


def test_commands_say_what_there_is(testbed: Testbed) -> None:
    for command, sentence in {
        ("restart", "kube-proxy"): 'there is no component "kube-proxy"',
        ("node", "kill", "nobody"): 'there is no node "nobody"',
        ("node", "add", "node-1"): "there is a node node-1 already",
        ("node", "add", "Not_A_Name"): 'node name "Not_A_Name"',
        ("node", "start", "node-1"): "node node-1: it is switched on",
        ("logs", "kube-proxy"): 'there is no log of "kube-proxy"; there are',
    }.items():
        refused = complete(BINARY, *command, "--dir", testbed.directory)
        assert refused.returncode == 1
        assert sentence in refused.stderr
