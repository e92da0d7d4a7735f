"""A real browser: Debian's Chromium, without a window, that talks to nobody but the page."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from .testbed import KUBECTL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from .testbed import Testbed

_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    """Provide it."""
    found = shutil.which("chromium")
    assert found, "there is no chromium: scripts/setup-test-tools installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_QUIET)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def forwarded(testbed: Testbed, namespace: str, target: str, port: int) -> Iterator[str]:
    """Have kubectl forward a port to a pod, and return the address at this end."""
    command = [str(KUBECTL), "-n", namespace, "port-forward", target, f":{port}"]
    process = subprocess.Popen(
        command, env={**os.environ, "KUBECONFIG": str(testbed.kubeconfig)}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()  # ends with the process, and that with what it cannot do
        assert said.startswith("Forwarding from 127.0.0.1:"), said
        yield f"http://127.0.0.1:{said.split()[2].rpartition(':')[2]}"
    finally:
        process.terminate()
        process.wait(10)
