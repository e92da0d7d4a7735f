"""The live page in a real browser, while a VM moves: what it shows is what happens, and the keyboard is enough."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.browser import chromium, forwarded
from support.holds import install
from support.namespace import IDLE, pod
from support.operators import SYSTEM, start_operator
from support.testbed import ROOT, Testbed
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page
    from support.scenes import Scene

PORT = 8090
PATIENCE = 60_000
expect.set_options(timeout=20_000)
"""How long is looked for what has to be there soon: other tests run beside this one."""
HOSTILE = '<img src="x" onerror="document.title=\'taken\'">'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster with two operators, one of which knows what there is."""
    flags = ("--cpu", "4", "--memory", "8Gi")
    with Testbed(tmp_path_factory.mktemp("shown"), nodes=2, flags=flags) as running:
        install(running, ROOT)
        start_operator(running, replicas=2, backoff="1s", page={})
        running.kubectl("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=60s", within=70)
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def operators(cluster: Testbed) -> tuple[str, str]:
    """Return the pods of who leads, and of who stands by."""
    lease = cluster.kubectl("-n", SYSTEM, "get", "lease", "elbowroom-operator", "-o", "jsonpath={.spec.holderIdentity}")
    leads = lease.rpartition("-")[0]
    pods = cluster.kubectl("-n", SYSTEM, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split()
    return leads, next(name for name in pods if name != leads)


@pytest.fixture
def page(cluster: Testbed, browser: Browser) -> Iterator[Page]:
    """Provide the page of who leads, and fail for whatever the browser complains about."""
    with forwarded(cluster, SYSTEM, f"pod/{operators(cluster)[0]}", PORT) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        found = context.new_page()
        complaints: list[str] = []
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.goto(url)
        expect(found.get_by_text("live", exact=True)).to_be_visible(timeout=10_000)
        yield found
        context.close()
        assert not complaints


def block(where: Locator | Page, *words: str) -> Locator:
    """Return the pods of which is said all of this."""
    return where.locator("button.pod" + "".join(f'[aria-label*="{word}"]' for word in words))


def test_a_move_is_seen_from_its_beginning_to_its_end(stage: Scene, page: Page) -> None:
    stage.boot(db="2", web="2")
    first, second = page.get_by_role("group", name="node-1:"), page.get_by_role("group", name="node-2:")
    expect(first.locator(".pod.vm")).to_have_count(2)
    expect(page.get_by_text("Nobody has asked for more room.")).to_be_visible()

    stage.requests.grow(
        "grow", vm="db", resources={"cpu": "4"}, transfer={"bandwidth": "5Mi"}
    )  # all of this is looked at meanwhile
    name = stage.space.name
    expect(block(first, f"VM {name}/db ", "is to grow")).to_be_visible(timeout=PATIENCE)
    expect(block(first, f"VM {name}/web ", "leaves, to make room")).to_be_visible(timeout=PATIENCE)
    expect(block(second, f"VM {name}/web ", "receives a VM")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("group", name=f"held for {stage.space.name}/db")).to_be_visible()
    expect(first.locator(".figures")).to_contain_text("+ 2 held of 4 CPUs")
    way = page.locator("#ways text")
    expect(way).to_have_text(re.compile(r"^([1-9]|[1-9]\d)%$"), timeout=PATIENCE)
    before = int((way.text_content() or "").removesuffix("%"))
    until("it moves on", lambda: int((way.text_content() or "0%").removesuffix("%")) > before, within=30)
    story = page.locator("details.request")
    expect(story).to_contain_text(f"{stage.space.name}/grow")
    expect(story).to_contain_text("web (2 cpu")
    expect(story).to_contain_text("Its neighbours are being moved.")

    stage.requests.until("grow", "Succeeded")
    expect(story).to_contain_text("It is done.", timeout=PATIENCE)
    expect(story.locator(".phase")).to_have_text("Succeeded")
    expect(page.locator("#said")).to_contain_text("grow: Succeeded.")  # for those who listen
    expect(way).to_have_count(0)
    expect(first.locator(".pod.vm")).to_have_count(1)
    expect(second.locator(".pod.vm")).to_have_count(1)
    expect(first.locator(".figures")).to_have_text("4 of 4 CPUs")
    whole = "pod => pod.getBoundingClientRect().width / pod.parentElement.clientWidth > 0.9"
    until("the block has grown", lambda: bool(first.locator(".pod.vm").evaluate(whole)), within=5)


def test_the_keyboard_is_enough(stage: Scene, page: Page) -> None:
    space = stage.space
    space.start(*(pod(name, IDLE, cpu="500m", nodeName="node-1") for name in ("one", "two")))
    space.start(pod("three", IDLE, cpu="500m", nodeName="node-2"))
    space.start(pod("hog", IDLE, cpu="1", memory="3Gi", nodeName="node-2"))
    expect(block(page, f"Pod {space.name}/")).to_have_count(4)

    page.keyboard.press("/")
    page.keyboard.type(f"{space.name}/hog")
    expect(page.locator(".node")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".node")).to_have_count(2)
    page.locator("body").focus()
    page.locator("#find").blur()

    focused = page.locator(".pod:focus")
    for _ in range(12):
        page.keyboard.press("Tab")
        if focused.count():
            break
    expect(focused).to_have_count(1)
    for key in ("ArrowUp", *["ArrowLeft"] * 20):
        page.keyboard.press(key)
    for _ in range(20):
        if f"{space.name}/one" in (focused.get_attribute("aria-label") or ""):
            break
        page.keyboard.press("ArrowRight")
    expect(page.locator("#about")).to_contain_text(f"Pod {space.name}/one on node-1: 0.5 CPUs")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#about")).to_contain_text("on node-2")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#about")).to_contain_text("on node-1")

    page.keyboard.press("m")
    expect(page.get_by_role("button", name="Memory")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("group", name="node-2:").locator(".figures")).to_contain_text("of 8 GiB")
    page.keyboard.press("c")
    expect(page.get_by_role("button", name="CPU", exact=True)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


def test_what_comes_from_the_cluster_is_text(stage: Scene, page: Page) -> None:
    """A pod's name cannot be markup; what its owner writes into it, and what is looked for, can."""
    found = pod("hostile", IDLE, cpu="500m", nodeName="node-1")
    found["metadata"]["labels"] = {"elbowroom.dev/vm": "hostile", "elbowroom.dev/movable": "true"}
    found["spec"]["containers"][0]["env"] = [{"name": "ELBOWROOM_CONFIG", "value": HOSTILE}]
    stage.space.start(found)
    stage.requests.grow("grow", vm="hostile", resources={"cpu": "4"})
    expect(page.locator("details.request")).to_contain_text(f"{stage.space.name}/grow")
    page.locator("#find").fill(HOSTILE[:60])
    expect(page.get_by_text("Nothing is called that.")).to_be_visible()
    assert page.title() == "Elbowroom"
    assert page.locator("img").count() == 0


def test_who_stands_by_says_whom_to_ask_and_a_lost_connection_is_told(cluster: Testbed, browser: Browser) -> None:
    leads, stands_by = operators(cluster)
    context = browser.new_context()
    found = context.new_page()
    with forwarded(cluster, SYSTEM, f"pod/{stands_by}", PORT) as url:
        found.goto(url)
        expect(found.locator("#told")).to_contain_text(f"in pod {leads}: ask that.")
    expect(found.locator("#link")).to_have_text("connection lost, trying again", timeout=20_000)
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark(cluster: Testbed, browser: Browser, scheme: str) -> None:
    """Every text has the contrast that the WCAG ask for (AA)."""
    with forwarded(cluster, SYSTEM, f"pod/{operators(cluster)[0]}", PORT) as url:
        context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
        found = context.new_page()
        found.goto(url)
        expect(found.locator(".pod").first).to_be_visible(timeout=10_000)
        poor = found.evaluate(CONTRAST)
        assert poor == []
        context.close()


CONTRAST = """() => {
  const parts = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true }) || element.closest("svg, .unseen")) continue;
    const [a, b] = [light(parts(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${element.className} ${element.textContent.slice(0, 30)} ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return found;
}"""
