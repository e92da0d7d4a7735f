"""What the pages point to is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.testbed import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "scheduler/*.md", "charts/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Return the files that a page names, with the heading."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in LINK.findall(text):
        if "://" not in target:
            path, _, heading = target.partition("#")
            yield (page.parent / path if path else page), heading


def headings(page: Path) -> set[str]:
    """Return the names under which headings can be reached, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_whatever_a_page_points_to_is_there(page: Path) -> None:
    for target, heading in links(ROOT / page):
        assert target.exists(), f"{page} points to {target.name}, which is not there"
        if heading:
            assert heading in headings(target), f"{page} points to #{heading} of {target.name}"


def test_every_page_is_reached_from_the_readme() -> None:
    seen, new = set(), [ROOT / "README.md"]
    while new:
        page = new.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        new += [target for target, _ in links(page)]
    assert {ROOT / page for page in PAGES} - seen == set()
