"""A pod runs as a process of this machine, and the real kubelet looks after it."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING

from support.namespace import IDLE, describe, pod
from support.processes import mentioning
from support.testbed import KUBECTL, PYTHON_IMAGE, ROOT, complete
from support.waiting import until

if TYPE_CHECKING:
    from support.namespace import Json, Namespace


def test_logs_and_exec_through_kubectl(namespace: Namespace) -> None:
    namespace.start(pod("speaker", f"echo to stdout; echo to stderr >&2; {IDLE}"))
    assert set(namespace.kubectl("logs", "speaker").splitlines()) == {"to stdout", "to stderr"}
    assert namespace.kubectl("exec", "speaker", "--", "hostname").strip() == "speaker"
    assert namespace.kubectl("exec", "-i", "speaker", "--", "cat", stdin="through the pipe") == "through the pipe"


def test_exec_hands_back_the_exit_code(namespace: Namespace) -> None:
    namespace.start(pod("target", IDLE))
    failed = complete(
        KUBECTL, "-n", namespace.name, "exec", "target", "--", "sh", "-c", "exit 42",
        env={"KUBECONFIG": str(namespace.testbed.kubeconfig)},
    )  # fmt: skip
    assert failed.returncode == 42


def test_exec_with_a_terminal(namespace: Namespace) -> None:
    namespace.start(pod("target", IDLE))
    # script gives kubectl a terminal to hand on.
    shown = complete(
        "script", "-qec", f"{KUBECTL} -n {namespace.name} exec -it target -- tty", "/dev/null",
        env={"KUBECONFIG": str(namespace.testbed.kubeconfig)}, within=30,
    ).stdout  # fmt: skip
    assert "/dev/pts/" in shown


def test_crash_restarts_and_is_told(namespace: Namespace) -> None:
    # It crashes once: of a container that keeps crashing, the kubelet may have removed the one whose log is asked for.
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    crash_once = f"if mkdir /work/crashed; then echo about to crash; exit 3; fi; {IDLE}"
    namespace.apply(pod("crasher", crash_once, container=mount, volumes=[{"name": "work", "emptyDir": {}}]))

    def restarted() -> Json:
        found = namespace.pod("crasher")
        status: Json = (found["status"].get("containerStatuses") or [{}])[0]
        assert status.get("restartCount", 0) == 1, describe(found)
        assert "running" in status["state"], describe(found)
        return status

    ended = until("the crashed container is started again", restarted)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert "about to crash" in namespace.kubectl("logs", "crasher", "--previous")


def test_exit_code_and_phase_without_restart(namespace: Namespace) -> None:
    namespace.apply(pod("good", "exit 0", restartPolicy="Never"), pod("bad", "exit 7", restartPolicy="Never"))
    assert (
        namespace.until_phase("good", "Succeeded")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        == 0
    )
    bad = namespace.until_phase("bad", "Failed")
    assert bad["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_commands_that_end_at_once_succeed(namespace: Namespace) -> None:
    names = [f"quick-{number}" for number in range(12)]
    namespace.apply(*(pod(name, ["true"], restartPolicy="Never") for name in names))
    for name in names:
        ended = namespace.until_phase(name, "Succeeded")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")


def test_many_pods_start_at_once_and_none_is_killed(namespace: Namespace) -> None:
    names = [f"crowd-{number}" for number in range(12)]
    started = namespace.start(*(pod(name, IDLE, node="node-3") for name in names))
    for before in started:
        after = namespace.pod(before["metadata"]["name"])
        assert (
            after["status"]["containerStatuses"][0]["containerID"]
            == before["status"]["containerStatuses"][0]["containerID"]
        )
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_command_that_does_not_exist_is_named(namespace: Namespace) -> None:
    namespace.apply(pod("lost", ["no-such-program"], restartPolicy="Never"))
    found = namespace.until_phase("lost", "Failed")
    assert "no-such-program" in found["status"]["containerStatuses"][0]["state"]["terminated"]["message"]


def test_an_image_without_command_says_what_to_do(namespace: Namespace) -> None:
    description = pod("empty", "")
    del description["spec"]["containers"][0]["command"]
    namespace.apply(description)

    def waiting() -> str:
        statuses = namespace.pod("empty")["status"].get("containerStatuses") or [{}]
        return str(statuses[0].get("state", {}).get("waiting", {}).get("message", ""))

    message = until("the kubelet tells why", lambda: waiting() if "only a name" in waiting() else None)
    assert "give the container a command" in message


def test_delete_sends_sigterm_and_ends_at_once(namespace: Namespace) -> None:
    namespace.start(pod("polite", IDLE, terminationGracePeriodSeconds=30))
    started = time.monotonic()
    namespace.kubectl("delete", "pod", "polite", "--timeout=20s")
    assert time.monotonic() - started < 10


def test_delete_kills_what_ignores_sigterm_after_its_grace(namespace: Namespace) -> None:
    namespace.start(
        pod("stubborn", "trap 'echo ignored' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=3)
    )
    started = time.monotonic()
    namespace.kubectl("delete", "pod", "stubborn", "--timeout=30s")
    assert 3 <= time.monotonic() - started < 12


def test_a_killed_containers_children_die_with_it(namespace: Namespace) -> None:
    marker = f"987654{time.time_ns()}"
    namespace.start(pod("parent", f"setsid sleep {marker} & {IDLE}"))

    def children() -> list[str]:
        return [line for line in mentioning(marker) if line.startswith("sleep ")]

    until("the child runs", children)
    namespace.kubectl("delete", "pod", "parent", "--timeout=20s")
    assert not children()


def test_environment_working_dir_user_and_root(namespace: Namespace) -> None:
    shown = "echo $GREETING; echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; pwd; id -u; id -g; touch /scratch-of-this-container; ls /"
    container = {
        "env": [{"name": "GREETING", "value": "hello"}], "workingDir": "/opt/made/up",
        "securityContext": {"runAsUser": 0, "runAsGroup": 1234},
    }  # fmt: skip
    namespace.apply(pod("shown", shown, restartPolicy="Never", container=container))
    namespace.until_phase("shown", "Succeeded")
    lines = namespace.kubectl("logs", "shown").splitlines()
    assert lines[:5] == ["hello", "10.96.0.1:443", "/opt/made/up", "0", "1234"]
    assert "scratch-of-this-container" in lines
    assert not complete("ls", "/scratch-of-this-container").stdout, "a container wrote to the machine's own root"


def test_an_unprivileged_user_without_capabilities(namespace: Namespace) -> None:
    container = {
        "securityContext": {
            "runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True, "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        }
    }  # fmt: skip
    command = "id -u; grep -E 'CapBnd|NoNewPrivs' /proc/self/status; touch /cannot 2>&1"
    namespace.apply(pod("restricted", command, restartPolicy="Never", container=container))
    namespace.until_phase("restricted", "Failed")
    shown = namespace.kubectl("logs", "restricted")
    assert "65532" in shown
    assert "0000000000000000" in shown
    assert "NoNewPrivs:\t1" in shown
    assert "Read-only file system" in shown


def test_volumes(namespace: Namespace) -> None:
    namespace.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "blue"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "word"}, "stringData": {"pass": "sesame"}},
    )
    mounts = {
        "volumeMounts": [
            {"name": "settings", "mountPath": "/etc/settings"}, {"name": "word", "mountPath": "/etc/word", "readOnly": True},
            {"name": "shared", "mountPath": "/shared"}, {"name": "about", "mountPath": "/etc/about"},
        ]
    }  # fmt: skip
    writer = "cat /etc/settings/colour /etc/word/pass /etc/about/name; echo; touch /etc/word/no 2>&1; echo from main > /shared/note"
    description = pod(
        "volumes", f"{writer}; {IDLE}", container=mounts,
        volumes=[
            {"name": "settings", "configMap": {"name": "settings"}}, {"name": "word", "secret": {"secretName": "word"}},
            {"name": "shared", "emptyDir": {}},
            {"name": "about", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ],
    )  # fmt: skip
    description["spec"]["containers"].append(
        {
            "name": "second", "image": "elbowroom.test/shell", "command": ["sh", "-c", IDLE],
            "volumeMounts": [{"name": "shared", "mountPath": "/elsewhere"}],
        }
    )  # fmt: skip
    namespace.start(description)
    first, second, *_ = namespace.kubectl("logs", "volumes", "-c", "main").splitlines()
    assert first == "bluesesamevolumes"
    assert "Read-only" in second
    until(
        "the second container sees the file",
        lambda: "from main" in namespace.kubectl("exec", "volumes", "-c", "second", "--", "cat", "/elsewhere/note"),
    )


def test_init_containers_run_first(namespace: Namespace) -> None:
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    description = pod(
        "ordered", f"cat /work/result; {IDLE}", container=mount, volumes=[{"name": "work", "emptyDir": {}}],
        initContainers=[{"name": "before", "image": "elbowroom.test/shell", "command": ["sh", "-c", "echo prepared > /work/result"], **mount}],
    )  # fmt: skip
    namespace.start(description)
    assert namespace.kubectl("logs", "ordered", "-c", "main").strip() == "prepared"


SERVER = "exec python3 -m http.server 8080 --directory /srv"


def server(name: str) -> Json:
    description = pod(name, f"mkdir -p /srv; echo I am {name} > /srv/who; {SERVER}", image=PYTHON_IMAGE, node="node-1")
    description["spec"]["containers"][0]["readinessProbe"] = {
        "httpGet": {"path": "/who", "port": 8080},
        "periodSeconds": 1,
    }
    return description


def test_pods_have_addresses_of_their_own_and_may_share_a_port(namespace: Namespace) -> None:
    first, second = namespace.start(server("first"), server("second"))
    addresses = first["status"]["podIP"], second["status"]["podIP"]
    assert addresses[0] != addresses[1]
    namespace.start(pod("client", IDLE, image=PYTHON_IMAGE, node="node-2"))
    for name, address in zip(("first", "second"), addresses, strict=True):
        fetch = f"import urllib.request; print(urllib.request.urlopen('http://{address}:8080/who', timeout=5).read().decode())"
        assert f"I am {name}" in namespace.kubectl("exec", "client", "--", "python3", "-c", fetch)


def test_port_forward(namespace: Namespace) -> None:
    namespace.start(server("server"))
    with subprocess.Popen(
        [KUBECTL, "-n", namespace.name, "port-forward", "pod/server", ":8080"],
        env={"KUBECONFIG": str(namespace.testbed.kubeconfig), "HOME": "/nonexistent"}, stdout=subprocess.PIPE, text=True,
    ) as forward:  # fmt: skip
        try:
            assert forward.stdout is not None
            port = forward.stdout.readline().split("127.0.0.1:")[1].split()[0]

            def page() -> bytes:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/who", timeout=5) as answer:
                        content: bytes = answer.read()
                        return content
                except OSError as error:
                    raise AssertionError(error) from error

            assert until("the page comes through", page) == b"I am server\n"
        finally:
            forward.terminate()


def test_run_attached_and_removed(namespace: Namespace) -> None:
    shown = namespace.kubectl(
        "run",
        "one-off",
        "--rm",
        "-i",
        "--restart=Never",
        "--image=elbowroom.test/shell",
        "--command",
        "--",
        "cat",
        stdin="typed in\n",
    )
    assert "typed in" in shown


def test_readiness_probes_exec_http_tcp(namespace: Namespace) -> None:
    ready: Json = {
        "exec": {"exec": {"command": ["test", "-e", "/srv/ready"]}},
        "http": {"httpGet": {"path": "/ready", "port": 8080}},
        "tcp": {"tcpSocket": {"port": 8080}},
    }
    descriptions = []
    for kind, probe in ready.items():
        description = pod(
            kind,
            f"mkdir -p /srv; while [ ! -e /go ]; do sleep 0.1; done; touch /srv/ready; {SERVER}",
            image=PYTHON_IMAGE,
        )
        description["spec"]["containers"][0]["readinessProbe"] = {**probe, "periodSeconds": 1}
        descriptions.append(description)
    namespace.apply(*descriptions)
    for kind in ready:
        running = namespace.until_phase(kind, "Running")
        assert not running["status"]["containerStatuses"][0]["ready"]
        namespace.kubectl("exec", kind, "--", "touch", "/go")
        namespace.until_ready(kind)


def test_a_failed_liveness_probe_restarts_the_container(namespace: Namespace) -> None:
    description = pod("ailing", f"touch /alive; {IDLE}")
    description["spec"]["containers"][0]["livenessProbe"] = {
        "exec": {"command": ["test", "-e", "/alive"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    namespace.start(description)
    namespace.kubectl("exec", "ailing", "--", "rm", "/alive")
    until(
        "the container is restarted",
        lambda: namespace.pod("ailing")["status"]["containerStatuses"][0]["restartCount"] == 1,
    )


def test_an_image_may_stand_for_a_folder_with_an_entrypoint(namespace: Namespace) -> None:
    folder = ROOT / ".cache" / "image-of-a-test"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entrypoint").write_text('#!/bin/sh\nexec greet "$@"\n')
    (folder / "greet").write_text("#!/bin/sh\necho greetings to $1\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    namespace.testbed.cli("image", "add", "example.test/greeter", str(folder))
    description = pod("greeter", "", restartPolicy="Never", image="example.test/greeter:v1")
    del description["spec"]["containers"][0]["command"]
    description["spec"]["containers"][0]["args"] = ["you"]
    namespace.apply(description)
    namespace.until_phase("greeter", "Succeeded")
    assert namespace.kubectl("logs", "greeter").strip() == "greetings to you"


def test_out_of_memory_is_told(namespace: Namespace) -> None:
    namespace.apply(
        pod(
            "hungry",
            ["python3", "-c", "x = bytearray(200 * 1024 * 1024)"],
            image=PYTHON_IMAGE,
            memory="64Mi",
            restartPolicy="Never",
        )
    )
    found = namespace.until_phase("hungry", "Failed")
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
