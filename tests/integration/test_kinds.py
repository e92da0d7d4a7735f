"""The three kinds at a real API server: what it refuses, what it fills in, what it shows."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
import yaml
from support.namespace import fresh_namespace
from support.testbed import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json, Namespace
    from support.testbed import Testbed

DATA = ROOT / "tests" / "data" / "kinds"
REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
UNCHANGEABLE = yaml.safe_load((DATA / "unchangeable.yaml").read_text())
CASES = [(kind, case) for kind, table in REFUSED.items() for case in table["cases"]]


@pytest.fixture(scope="module")
def kinds(testbed: Testbed) -> Iterator[Namespace]:
    """Provide a namespace for all that is refused anyway."""
    testbed.kubectl("apply", "-f", str(ROOT / "crds"))
    testbed.kubectl("wait", "--for=condition=Established", "--timeout=20s", "-f", str(ROOT / "crds"))
    with fresh_namespace(testbed, "kinds") as made:
        yield made


def described(kind: str, spec: Json, name: str | None = None) -> Json:
    return {
        "apiVersion": "elbowroom.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name or f"x{secrets.token_hex(4)}"}, "spec": spec,
    }  # fmt: skip


def refusal(namespace: Namespace, thing: Json) -> str:
    with pytest.raises(AssertionError) as error:
        namespace.kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(thing))
    return " ".join(str(error.value).split())


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind}: {case['name']}" for kind, case in CASES])
def test_a_bad_object_is_refused_with_a_sentence(kinds: Namespace, kind: str, case: Json) -> None:
    spec = {key: value for key, value in {**REFUSED[kind]["good"], **case["spec"]}.items() if value is not None}
    assert case["says"] in refusal(kinds, described(kind, spec))


@pytest.mark.parametrize("kind", REFUSED)
def test_a_good_object_is_taken(kinds: Namespace, kind: str) -> None:
    """Else the table above would prove nothing."""
    thing = described(kind, REFUSED[kind]["good"])
    kinds.apply(thing)
    kinds.kubectl("delete", kind.lower(), thing["metadata"]["name"])


@pytest.mark.parametrize("case", UNCHANGEABLE, ids=[f"{case['kind']}: {case['says'][:24]}" for case in UNCHANGEABLE])
def test_what_cannot_be_changed(kinds: Namespace, case: Json) -> None:
    before = described(case["kind"], case["from"])
    kinds.apply(before)
    try:
        assert case["says"] in refusal(kinds, described(case["kind"], case["to"], before["metadata"]["name"]))
    finally:
        kinds.kubectl("delete", case["kind"].lower(), before["metadata"]["name"])


@pytest.mark.usefixtures("kinds")
def test_defaults_are_filled_in(namespace: Namespace) -> None:
    namespace.apply(described("VMScaleRequest", {"vm": "db", "resources": {"cpu": 4}}, "grow-db"))
    spec = yaml.safe_load(namespace.kubectl("get", "vmsr", "grow-db", "-o", "yaml"))["spec"]
    assert spec == {
        "vm": "db", "resources": {"cpu": 4}, "strategy": ["InPlace", "MoveNeighbour"], "priority": 0, "deadline": "10m",
        "neighbours": {"atMost": 4}, "dryRun": False, "suspend": False, "ttlSecondsAfterFinished": 86400,
        "transfer": {
            "bandwidth": "1Gi", "downtime": "300ms", "timeout": "10m", "switchOverTimeout": "1m", "autoConverge": True,
            "postCopy": False, "channels": 0,
        },
    }  # fmt: skip


@pytest.mark.usefixtures("kinds")
def test_columns_tell_the_story(namespace: Namespace) -> None:
    namespace.apply(described("VMScaleRequest", {"vm": "db", "resources": {"cpu": "4"}}, "grow-db"))
    status = {
        "node": "node-1",
        "from": "2 cpu",
        "to": "4 cpu",
        "phase": "Moving",
        "reason": "Transferring",
        "moving": "web 41 %",
    }
    namespace.kubectl(
        "patch", "vmsr", "grow-db", "--subresource=status", "--type=merge", "-p", yaml.safe_dump({"status": status})
    )
    header, row = namespace.kubectl("get", "vmsr").splitlines()
    assert header.split() == ["NAME", "VM", "NODE", "FROM", "TO", "PHASE", "REASON", "MOVING", "AGE"]
    for cell in ("grow-db", "db", "node-1", "2 cpu", "4 cpu", "Moving", "Transferring", "web 41 %"):
        assert cell in row
    assert "vmscalerequest.elbowroom.dev/grow-db" in namespace.kubectl("get", "elbowroom", "-o", "name")


@pytest.mark.usefixtures("kinds")
def test_a_suspended_request_can_go_on(namespace: Namespace) -> None:
    thing = described("VMScaleRequest", {"vm": "db", "resources": {"cpu": "4"}, "suspend": True}, "grow-db")
    namespace.apply(thing)
    thing["spec"]["suspend"] = False
    namespace.apply(thing)
    assert namespace.kubectl("get", "vmsr", "grow-db", "-o", "jsonpath={.spec.suspend}") == "false"
