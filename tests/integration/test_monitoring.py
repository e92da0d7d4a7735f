"""The chart's alerts and dashboard: each alert fires when it should, and nothing is asked for that nobody counts."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from support.prometheus import RULES, TOOLS, alerts, panels
from support.testbed import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"\belbowroom_\w+")


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    cases = ROOT / "tests" / "data" / "alerts.yaml"
    for file in (RULES, cases):
        shutil.copy(file, tmp_path)
    run(TOOLS / "promtool", "test", "rules", tmp_path / "alerts.yaml")
    tried = set(re.findall(r"alertname: (\w+), exp_alerts|alertname: (\w+)\n\s+exp_alerts", cases.read_text()))
    assert {first or second for first, second in tried} == {rule["alert"] for rule in alerts()}


def test_nothing_is_asked_for_that_nobody_counts() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    known = dict(re.findall(r"^\| `(elbowroom_\w+)` \| (\w+)", page, re.MULTILINE))
    series = {
        f"{name}{suffix}" for name, kind in known.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }  # fmt: skip
    asked = [rule["expr"] for rule in alerts()] + [query for queries in panels().values() for query in queries]
    assert {name for query in asked for name in _NAME.findall(query)} <= series


def test_each_alert_has_its_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("warning", "critical")
