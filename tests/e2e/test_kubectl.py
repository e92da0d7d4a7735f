"""`kubectl elbowroom` as people type it, in a cluster with an operator."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from support.namespace import IDLE, pod
from support.testbed import KUBECTL, ROOT, complete

if TYPE_CHECKING:
    import subprocess

    from support.scenes import Scene


def typed(stage: Scene, *words: str, within: float = 120) -> subprocess.CompletedProcess[str]:
    """Type a command: kubectl finds the plugin by its name in the PATH."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    env = {"KUBECONFIG": str(stage.space.testbed.kubeconfig), "PATH": path}
    return complete(KUBECTL, "elbowroom", *words, within=within, env=env)


def said(stage: Scene, *words: str) -> str:
    done = typed(stage, *words, "-n", stage.space.name)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_vm_grows_and_everything_about_it_is_told(stage: Scene) -> None:
    stage.boot(db="2", web="2")
    free = json.loads(said(stage, "nodes", "-o", "json"))[0]["cpu"]
    assert (free["free"], free["held"], free["allocatable"]) == (0, 0, 4000)

    plan = said(stage, "plan", "db", "--cpu", "4")
    assert "VM db from 2 cpu" in plan
    assert "node-1 lacks 2 cpu. To make room:" in plan
    assert f"{stage.space.name}/web" in plan
    assert stage.requests.all("vmscalerequests") == []
    found: dict[str, Any] = json.loads(said(stage, "plan", "db", "--cpu", "4", "-o", "json"))
    assert [item["vm"] for item in found["moves"]] == ["web"]

    grown = said(stage, "grow", "db", "--cpu", "4")
    for phase in ("Moving", "Swapping", "Succeeded"):
        assert phase in grown
    assert "web 99%" in grown
    assert grown.endswith("Succeeded: The pod, and the guest in it, have the size that was asked for.\n")
    (request,) = stage.requests.all("vmscalerequests")
    told = said(stage, "explain", request["metadata"]["name"])
    for sentence in ("node-1 lacks 2 cpu: web", "web runs on node-", "The pod has 4 cpu", "now    It is done."):
        assert sentence in told
    lines = said(stage, "vms").splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["db", "web"]

    moved = typed(stage, "migrate", "web", "--to", "node-1", "--deadline", "5s", "-n", stage.space.name)
    assert moved.returncode == 1
    assert "Failed: " in moved.stdout
    stage.witness.assert_kept(stage.space.name)


def test_a_plan_that_cannot_be_made_says_what_to_do(stage: Scene) -> None:
    stage.space.start(pod("mine", IDLE, cpu="500m", nodeName="node-1"))
    stage.fill("node-1")
    done = typed(stage, "plan", "mine", "--cpu", "2", "-n", stage.space.name)
    assert done.returncode == 1
    assert "not now  No set of neighbours that may be moved would free enough." in done.stdout
    assert "to do    Label a neighbour on that node as movable" in done.stdout
    plain = next(line for line in done.stdout.splitlines() if line.endswith(": it is a plain pod"))
    assert f"{stage.space.name}/filler" in plain
    assert stage.requests.all("vmscalerequests") == []


def test_what_cannot_be_done_is_said_in_one_sentence(stage: Scene) -> None:
    for words, told in (
        (("explain", "none"), "there is no request none in namespace"),
        (("grow", "none", "--cpu", "1"), "there is neither a pod nor a VM none in namespace"),
        (("grow", "none"), "give --cpu, --memory or both"),
        (("nodes", "--context", "none"), "--context: the kubeconfig has no context none"),
    ):
        done = typed(stage, *words, *(() if "--context" in words else ("-n", stage.space.name)))
        assert done.returncode == 1
        assert told in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_the_shell_proposes_what_there_is(stage: Scene) -> None:
    stage.space.start(pod("mine", IDLE, cpu="100m"))
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    env = {"KUBECONFIG": str(stage.space.testbed.kubeconfig), "PATH": path}
    done = complete(KUBECTL, "__complete", "elbowroom", "grow", "-n", stage.space.name, "m", env=env)
    assert done.stdout.splitlines()[0] == "mine"
