"""Every command and every manifest that a page shows does what the page says."""

from __future__ import annotations

import re
import shutil
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml
from support.charts import PSS, Cluster, vm
from support.pages import Shell, blocks, pages_with
from support.testbed import ROOT, run
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = "shop"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide a cluster in which nothing is installed, and a namespace of somebody's."""
    with Cluster(tmp_path_factory.mktemp("docs"), flags=("--cpu", "6")) as running:
        running.space(SHOP)
        yield running


@pytest.fixture(scope="module")
def shell(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Sit at a terminal whose kubectl is set to that namespace."""
    folder = tmp_path_factory.mktemp("terminal")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text())
    run("bash", "-c", f"KUBECONFIG={kubeconfig} {ROOT}/bin/kubectl config set-context --current --namespace={SHOP}")
    return Shell(kubeconfig, folder)


def only(page: str, word: str) -> str:
    """Return the one block of a page in which a word stands."""
    (found,) = (block for block in blocks(page, "console") if word in block)
    return found


def test_no_page_is_left_out() -> None:
    assert pages_with("console") == {
        "README.md", "CONTRIBUTING.md", "charts/elbowroom/README.md", "docs/kubectl.md", "docs/operations.md",
        "docs/page.md", "docs/testbed.md",
    }  # fmt: skip
    assert pages_with("yaml") == {"README.md"}
    assert [block.split()[0] for block in blocks("README.md", "console")] == ["make", "kubectl", "helm", "bin/testbed"]
    for page, count in (("CONTRIBUTING.md", 1), ("docs/kubectl.md", 1), ("docs/operations.md", 1), ("docs/page.md", 1)):
        assert len(blocks(page, "console")) == count, page


def test_the_chart_is_installed_as_its_pages_say(shell: Shell) -> None:
    assert only("README.md", "helm install") == only("charts/elbowroom/README.md", "helm install")
    _, told = shell.type(only("README.md", "helm install"))
    assert "Phase:          Succeeded" in told
    assert "ok  " in told


def test_a_vm_grows_as_the_readme_says(shell: Shell, cluster: Cluster) -> None:
    cluster.kubectl("label", "namespace", SHOP, f"{PSS}=restricted", "--overwrite")
    machines = [vm("db", "node-1", "2"), vm("web", "node-1", "3")]
    cluster.kubectl("-n", SHOP, "apply", "-f", "-", stdin=yaml.safe_dump_all(machines))
    cluster.kubectl("-n", SHOP, "wait", "pod", "db", "web", "--for=condition=Ready", "--timeout=80s", within=90)
    plan, grown, told = shell.type(only("README.md", "kubectl elbowroom plan"))
    assert "web" in plan
    assert "Succeeded: " in grown
    assert "now    It is done." in told
    operations = shell.type(only("docs/operations.md", "kubectl get vmsr"))
    assert "grow-db" in operations[0]
    assert "The pod, and the guest in it, have the size that was asked for." in operations[3]


def test_manifests_do_what_they_say(cluster: Cluster) -> None:
    cluster.kubectl("-n", SHOP, "delete", "vmsr", "--all", "--timeout=30s")
    for block in blocks("README.md", "yaml"):
        cluster.kubectl("-n", SHOP, "apply", "-f", "-", stdin=block)
    until(
        "it is done",
        lambda: "Succeeded" in cluster.kubectl("-n", SHOP, "get", "vmsr", "grow-db", "-o", "jsonpath={.status.phase}"),
        within=60,
    )


def test_the_page_is_opened_as_its_own_page_says(shell: Shell) -> None:
    with (
        shell.typed(only("docs/page.md", "port-forward"), []),
        urllib.request.urlopen("http://localhost:8090", timeout=5) as answer,
    ):
        assert "<title>Elbowroom</title>" in answer.read().decode()


def test_the_plugin_is_installed_as_its_page_says(shell: Shell, tmp_path: Path) -> None:
    run("python3", "-m", "venv", tmp_path / "venv", within=60)
    pip = f"{tmp_path / 'venv' / 'bin' / 'pip'} install -q --disable-pip-version-check"
    mine = Shell(
        shell.kubeconfig, tmp_path, {"pip install": pip, "kubectl elbowroom": f"{tmp_path}/venv/bin/kubectl-elbowroom"}
    )
    try:
        *_, machines = mine.type(only("docs/kubectl.md", "pip install"))
    finally:
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools works there
    assert [line.split()[1] for line in machines.splitlines()[1:]] == ["db", "web"]


@pytest.mark.parametrize("page", ["README.md", "docs/testbed.md"])
def test_the_testbed_is_used_as_its_pages_say(page: str, tmp_path: Path) -> None:
    said: list[str] = []
    with Shell(None, tmp_path, {"/tmp/bed": str(tmp_path / "bed")}).typed(only(page, "bin/testbed up"), said):  # noqa: S108
        assert "node-3" in said[0]


def test_the_demo_is_shown_and_what_make_is_asked_for_is_there(tmp_path: Path) -> None:
    """`make test` is what runs this: of that, and of what else is for those who work on it, only that it is there."""
    where = f"demo_dir={tmp_path / 'demo'}"
    try:
        story = run("make", "-C", ROOT, "demo", where, within=200)
    finally:
        run("make", "-C", ROOT, "demo-down", where)
    assert re.search(r"The guest of db has 4 vCPUs and \d+ MiB now, and was not restarted\.", story)
    assert "thief still waits" in story
    for line in (*only("CONTRIBUTING.md", "make lint").splitlines(), "make test"):
        run("make", "-C", ROOT, "-n", *line.partition("  #")[0].split()[1:])
