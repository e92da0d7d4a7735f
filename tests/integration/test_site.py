"""The docs as a site: built without a warning, and read in a browser that may ask nobody else."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.browser import chromium
from support.testbed import ROOT, complete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

SITE = ROOT / ".cache" / "site" / "html"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    done = complete(ROOT / "scripts" / "build-site", within=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(site: str) -> Iterator[Page]:
    with chromium() as browser:
        found = browser.new_context(base_url=site).new_page()
        asked: list[str] = []
        found.on("request", lambda request: asked.append(request.url))
        found.on("pageerror", lambda error: asked.append(str(error)))
        yield found
        assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


def test_every_page_is_shown_and_asks_nobody_else(page: Page) -> None:
    names = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    assert len(names) > 25
    for name in names:
        answer = page.goto(f"/{name}")
        assert answer is not None
        assert answer.ok, name
        expect(page.locator("h1").first).to_be_visible()
        broken = page.evaluate("[...document.images].filter((image) => !image.naturalWidth).map((image) => image.src)")
        assert broken == [], name


def test_the_phases_are_drawn(page: Page) -> None:
    page.goto("/states.html")
    expect(page.locator(".mermaid").first).to_be_visible()
    expect(page.locator("pre.mermaid")).to_have_count(0, timeout=15_000)  # what is drawn takes the place of its text


def test_words_are_found(page: Page) -> None:
    page.goto("/index.html")
    page.keyboard.press("/")
    page.keyboard.type("RunnerSilent")
    expect(page.locator(".md-search-result__link").first).to_be_visible(timeout=10_000)
