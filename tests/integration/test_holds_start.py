"""What the scheduler says when it starts: bad configurations, missing kinds and rights, and its metrics."""

from __future__ import annotations

import base64
import re
import ssl
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml
from support.holds import Holds
from support.namespace import IDLE, pod
from support.testbed import BINARY, ROOT, Testbed, complete
from support.waiting import stays, until

if TYPE_CHECKING:
    from pathlib import Path

    from support.inside import Inside
    from support.namespace import Json, Namespace

CONFIG = yaml.safe_load((ROOT / "scheduler" / "config" / "replace.yaml").read_text())


def started_with(testbed: Testbed, path: Path, profile: Json) -> str:
    """Start a scheduler that must not start, and return its last words."""
    config = {**CONFIG, "profiles": [profile], "clientConnection": {"kubeconfig": str(testbed.kubeconfig)}}
    path.write_text(yaml.safe_dump(config))
    ended = complete(BINARY, "kube-scheduler", "--config", path, "--secure-port=0", within=30)
    assert ended.returncode != 0
    return ended.stderr


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pluginConfig": [{"name": "Elbowroom", "args": {"recieverWait": "1m"}}]}, "plugin Elbowroom: json: unknown field"),
        ({"pluginConfig": [{"name": "Elbowroom", "args": {"receiverWait": "0s"}}]}, "receiverWait has to be between 1s and 15m0s, not 0s"),
        ({"plugins": {}}, "does not enable the plugin Elbowroom"),
        ({"plugins": {"multiPoint": {"enabled": [{"name": "Elbowroom"}]}}}, "has DefaultPreemption: it would kill claimants"),
    ],
    ids=["unknown argument", "bad argument", "no plugin", "stock preemption"],
)  # fmt: skip
def test_a_bad_configuration_is_refused_in_a_sentence(
    testbed: Testbed, tmp_path: Path, change: Json, sentence: str
) -> None:
    said = started_with(testbed, tmp_path / "config.yaml", {**CONFIG["profiles"][0], **change})
    assert sentence in said, said[-600:]


def test_the_shipped_configurations_differ_in_what_they_take_over() -> None:
    beside = yaml.safe_load((ROOT / "scheduler" / "config" / "beside.yaml").read_text())
    (whole,), (part,) = CONFIG["profiles"], beside["profiles"]
    assert (whole.pop("schedulerName"), part.pop("schedulerName")) == ("default-scheduler", "elbowroom")
    assert whole == part
    assert beside["leaderElection"]["resourceName"] != "kube-scheduler"


def test_without_the_kinds_pods_are_scheduled_and_without_the_rights_they_are_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Testbed(tmp_path_factory.mktemp("bare"), nodes=1) as bare:
        core = bare.core
        until("there is an account for pods", lambda: core.list_namespaced_service_account("default").items)

        def bound(name: str) -> bool:
            spec = core.read_namespaced_pod(name, "default").spec
            return bool(spec and spec.node_name)

        bare.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod("first", IDLE)))
        until("a pod is placed", lambda: bound("first"))
        bare.kubectl("apply", "-f", f"{ROOT}/crds")
        bare.kubectl("wait", "--for=condition=Established", "--timeout=20s", "-f", f"{ROOT}/crds")
        # From now on there may be holds, and a new scheduler is not allowed to read them.
        bare.cli("restart", "kube-scheduler")
        bare.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod("second", IDLE)))
        until("it says what it lacks", lambda: "Holds cannot be read" in bare.cli("logs", "kube-scheduler"))
        stays("nobody is placed", lambda: not bound("second"), during=2)
        bare.kubectl("apply", "-f", f"{ROOT}/scheduler/config/rbac.yaml")
        until("it goes on", lambda: bound("second"))


def test_metrics_are_on_the_schedulers_own_endpoint(
    namespace: Namespace, extra_node: str, inside: Inside, tmp_path: Path
) -> None:
    holds = Holds(namespace)
    (db,) = namespace.start(pod("db", IDLE, cpu="1", nodeName=extra_node))
    hold = holds.create(db, "4")
    try:
        holds.until(hold, "Held")
        namespace.apply(pod("kept-out", IDLE, cpu="1", node=extra_node))

        async def scrape() -> dict[str, float]:
            context = credentials(namespace.testbed, tmp_path)
            with urllib.request.urlopen("https://127.0.0.1:10259/metrics", context=context, timeout=10) as answer:  # noqa: ASYNC210  # a fixed address, asked once
                lines = answer.read().decode().splitlines()
            found = (re.fullmatch(r"(elbowroom_\S+) (\S+)", line) for line in lines)
            return {match[1]: float(match[2]) for match in found if match}

        def counted() -> dict[str, float]:
            numbers = inside.run(scrape())
            assert numbers['elbowroom_holds{phase="Held"}'] == 1, numbers
            assert numbers['elbowroom_refusals_total{extension_point="Filter"}'] >= 1, numbers
            assert numbers['elbowroom_acknowledgement_seconds_count{phase="Held"}'] >= 1, numbers
            assert "elbowroom_receivers_waiting" in numbers
            return numbers

        until("the scheduler has counted", counted)
    finally:
        holds.close()


def credentials(testbed: Testbed, folder: Path) -> ssl.SSLContext:
    """Return the administrator's credentials; the certificate of the scheduler is signed by the cluster's authority."""
    config = yaml.safe_load(testbed.kubeconfig.read_text())
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    files = {
        "key": user["client-key-data"],
        "cert": user["client-certificate-data"],
        "ca": cluster["certificate-authority-data"],
    }
    for name, text in files.items():
        (folder / name).write_bytes(base64.b64decode(text))
    context = ssl.create_default_context(cafile=str(folder / "ca"))
    context.load_cert_chain(str(folder / "cert"), str(folder / "key"))
    return context
