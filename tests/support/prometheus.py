"""A real Prometheus, where control plane components stand, that scrapes what a test names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from .schedulers import Process
from .testbed import ROOT
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .namespace import Json
    from .testbed import Testbed
    from .vms import Vms

TOOLS = ROOT / ".cache" / "prometheus" / "usr" / "bin"
_ADDRESS = "127.0.0.1:9099"
RULES = ROOT / "charts" / "elbowroom" / "files" / "rules.yaml"
DASHBOARD = ROOT / "charts" / "elbowroom" / "files" / "dashboard.json"


def alerts() -> list[Json]:
    """Return the chart's alerts."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> dict[str, list[str]]:
    """Return the queries of the chart's dashboard, by the titles of their panels."""
    found: Json = json.loads(DASHBOARD.read_text())
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in found["panels"]}


def prometheus(testbed: Testbed, folder: Path, targets: Iterable[str]) -> Process:
    """Describe one that scrapes these every second, with the chart's alerts."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "elbowroom", "static_configs": [{"targets": [*targets]}]}],
    }  # fmt: skip
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        str(TOOLS / "prometheus"), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={_ADDRESS}", "--web.console.templates=/none", "--web.console.libraries=/none",
    ]  # fmt: skip
    return Process(testbed, folder / "prometheus.log", command)


class Asked:
    """Asks it."""

    def __init__(self, vms: Vms) -> None:
        """Take who stands where it can be called."""
        self._vms = vms

    def _get(self, path: str) -> Any:
        status, text = self._vms.ask(f"http://{_ADDRESS}/api/v1/{path}", seconds=5)
        assert status == 200, f"{path}: {status} {text}"
        found: Json = json.loads(text)
        assert found["status"] == "success", f"{path}: {text}"
        return found["data"]

    def until_scraped(self) -> None:
        """Wait until everything has been scraped twice, without an error."""

        def probe() -> bool:
            targets = self._get("targets")["activeTargets"]
            assert all(item["health"] == "up" for item in targets), [item["lastError"] for item in targets]
            return bool(self.value("min(count_over_time(up[1m]))") >= 2)

        until("everything is scraped", probe, within=30)

    def series(self, query: str) -> list[Json]:
        """Return what a query finds."""
        found: list[Json] = self._get(f"query?query={quote(query)}")["result"]
        return found

    def value(self, query: str) -> float:
        """Return the one number that a query finds."""
        found = self.series(query)
        assert len(found) == 1, f"{query}: {found}"
        return float(found[0]["value"][1])

    def firing(self) -> list[str]:
        """Return the alerts that fire, or are about to."""
        return [item["labels"]["alertname"] for item in self._get("alerts")["alerts"]]
