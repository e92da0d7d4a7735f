"""Take the pictures of the live page that the docs show, from a real move on a testbed: `make pictures`."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml
from demo import FULL_NODE, Demo, vm
from support.browser import chromium, forwarded
from support.namespace import IDLE, pod
from support.operators import SYSTEM
from support.testbed import ROOT, Testbed, run

PICTURES: Final = ROOT / "docs" / "pictures"
SIZE: Final = {"width": 1200, "height": 530}
PORT: Final = 8090
HALF_WAY: Final = 45
Json = dict[str, Any]


def machine(name: str, node: str, cpu: str) -> Json:
    """Describe a VM."""
    found: Json = copy.deepcopy(vm(name))
    found["spec"]["nodeName"] = node
    found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return found


SCENE: Final = (
    machine("db", FULL_NODE, "1500m"), machine("web", FULL_NODE, "1500m"),
    pod("cache", IDLE, cpu="900m", memory="2Gi", nodeName=FULL_NODE),
    machine("mail", "node-2", "1"), pod("frontend", IDLE, cpu="500m", memory="1Gi", nodeName="node-2"),
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
            demo.until("the copy is half done", lambda: half_way(demo))
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


def half_way(demo: Demo) -> bool:
    """Tell whether the copy is half done."""
    told = demo.kubectl("get", "vmm", "-o", "jsonpath={.items[*].status.percent}").split()
    return bool(told) and int(told[0]) >= HALF_WAY


if __name__ == "__main__":
    main()
