"""Take the pictures of the live page that the docs show, from a real move on a testbed: `make pictures`."""

from __future__ import annotations

import copy
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml
from demo import FULL_NODE, Demo, vm
from support.browser import chromium, forwarded
from support.operators import SYSTEM
from support.testbed import ROOT, Testbed, run

PICTURES: Final = ROOT / "docs" / "pictures"
SIZE: Final = {"width": 1200, "height": 530}
PORT: Final = 8090
HALF_WAY: Final = 45
PATIENCE: Final = 120.0
Json = dict[str, Any]


def plain(name: str, node: str, cpu: str, memory: str) -> Json:
    """Describe a pod that is no VM."""
    container = {
        "name": "main", "image": "elbowroom.test/shell", "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }  # fmt: skip
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def machine(name: str, node: str, cpu: str) -> Json:
    """Describe a VM."""
    found: Json = copy.deepcopy(vm(name))
    found["spec"]["nodeName"] = node
    found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return found


SCENE: Final = (
    machine("db", FULL_NODE, "1500m"), machine("web", FULL_NODE, "1500m"), plain("cache", FULL_NODE, "900m", "2Gi"),
    machine("mail", "node-2", "1"), plain("frontend", "node-2", "500m", "1Gi"),
)  # fmt: skip
REQUEST: Final = {
    "apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMScaleRequest", "metadata": {"name": "grow-db"},
    "spec": {"vm": "db", "resources": {"cpu": "3"}, "transfer": {"bandwidth": "10Mi"}},
}  # fmt: skip


def main() -> None:
    """Have a VM move slowly, and look at the page half way."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "demo"
        demo = Demo(directory)
        try:
            demo.cluster()
            names = [item["metadata"]["name"] for item in SCENE]
            demo.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(SCENE))
            demo.kubectl("wait", "pod", *names, "--for=condition=Ready", "--timeout=80s")
            demo.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(REQUEST))
            half_way(demo)
            testbed = Testbed(directory)
            testbed.kubeconfig = directory / "kubeconfig"
            with forwarded(testbed, SYSTEM, "deployment/elbowroom-operator", PORT) as url, chromium() as browser:
                for scheme in ("light", "dark"):
                    context = browser.new_context(
                        viewport=SIZE, color_scheme=scheme, device_scale_factor=1.5, reduced_motion="reduce"
                    )
                    page = context.new_page()
                    page.goto(url)
                    page.locator("#ways text").wait_for()
                    page.wait_for_timeout(1000)
                    page.screenshot(path=PICTURES / f"page-{scheme}.png")
                    context.close()
        finally:
            run(ROOT / "bin" / "testbed", "down", "--dir", directory)


def half_way(demo: Demo) -> None:
    """Wait until the copy is half done."""
    until = time.monotonic() + PATIENCE
    while True:
        told = demo.kubectl("get", "vmm", "-o", "jsonpath={.items[*].status.percent}").split()
        if told and int(told[0]) >= HALF_WAY:
            return
        if time.monotonic() > until:
            raise SystemExit(f"nothing is half way after {PATIENCE:g} s: {told}")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
