// Draws what the operator tells. Everything that is shown is text: nothing that comes from the cluster is taken as markup.

const at = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");
const SVG = "http://www.w3.org/2000/svg";
const TRY_AGAIN = 5000;

let parts = {};       // of the picture, by their names
let resource = "cpu"; // what the bars show
let source = null;
let retry = 0;
const nodes = new Map();    // name -> element
const pods = new Map();     // id -> element
const requests = new Map(); // id -> element
const ways = new Map();     // migration -> {group, path, dot, text, shown, percent, from, to}

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

// Amounts, as people say them

function amount(value, kind) {
  if (kind === "cpu") return String(Math.round(value) / 1000);
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= unit) return `${(value / unit).toFixed(1).replace(".0", "")} ${name}`;
  }
  return `${value} B`;
}

function cores(milli) {
  const said = amount(milli, "cpu");
  return `${said} ${said === "1" ? "CPU" : "CPUs"}`;
}

function figures(bar, kind) {
  const held = bar.held ? ` + ${amount(bar.held, kind)} held` : "";
  return `${amount(bar.used, kind)}${held} of ${kind === "cpu" ? cores(bar.allocatable) : amount(bar.allocatable, kind)}`;
}

const ROLES = {
  grows: "is to grow", leaves: "leaves, to make room", receives: "receives a VM that moves here",
};

function about(pod, node) {
  const what = pod.vm ? `VM ${pod.namespace}/${pod.vm} in pod ${pod.name}` : `Pod ${pod.namespace}/${pod.name}`;
  const told = [`${what} on ${node}: ${cores(pod.cpu)}, ${amount(pod.memory, "memory")}`];
  if (pod.role) told.push(ROLES[pod.role]);
  if (pod.state) told.push(pod.state);
  if (pod.vm && !pod.role) told.push(pod.movable ? "may be moved" : `stays: ${pod.why || "its owner has not said that it may be moved"}`);
  return told.join("; ");
}

// Nodes and pods

function keep(known, wanted, parent, create) {
  // Elements stay the same ones, so that what changes can be seen to move, and the focus stays where it is.
  for (const [id, element] of known) {
    if (!wanted.includes(id)) { element.remove(); known.delete(id); }
  }
  wanted.forEach((id, index) => {
    if (!known.has(id)) known.set(id, create(id));
    const element = known.get(id);
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}

function newNode(name) {
  const node = make("div", "node");
  node.setAttribute("role", "group");
  node.head = make("div", "head");
  node.figures = make("span", "figures");
  node.head.append(make("span", "name", name), node.figures);
  node.bar = make("div", "bar");
  node.held = make("div", "held");
  node.small = make("div", "small");
  node.pods = new Map();
  node.bar.append(node.small, node.held);
  node.append(node.head, node.bar);
  return node;
}

function newPod(id) {
  const pod = make("button", "pod");
  pod.type = "button";
  pod.tabIndex = -1;
  pod.dataset.id = id;
  pod.name_ = make("b");
  pod.size_ = make("small");
  pod.append(pod.name_, pod.size_);
  return pod;
}

function drawPod(element, pod, node, whole) {
  element.className = ["pod", pod.vm && "vm", pod.role, pod.state].filter(Boolean).join(" ");
  element.name_.textContent = pod.vm || pod.name;
  element.size_.textContent = amount(pod[resource], resource);
  element.style.width = `${whole ? (100 * pod[resource]) / whole : 0}%`;
  element.about = about(pod, node);
  element.setAttribute("aria-label", element.about);
  element.title = element.about;
}

function drawNode(element, node) {
  const bar = node[resource];
  const named = { cpu: figures(node.cpu, "cpu"), memory: figures(node.memory, "memory") };
  element.className = `node${node.ready ? "" : " away"}${node.open ? "" : " shut"}`;
  element.figures.textContent = named[resource];
  const heldFor = node.heldFor.length ? `, held for ${node.heldFor.join(" and ")}` : "";
  element.setAttribute("aria-label", `${node.name}: ${named.cpu}; ${named.memory}${heldFor}`);
  keep(element.pods, node.pods.map((pod) => pod.id), element.bar, (id) => {
    const made = newPod(id);
    pods.set(id, made);
    return made;
  });
  // What is held of room that is not free yet is seen on the neighbour that leaves.
  const whole = Math.max(bar.allocatable, bar.used);
  for (const pod of node.pods) drawPod(element.pods.get(pod.id), pod, node.name, whole);
  const small = node.small;
  element.small.title = `${small.count} small pods: ${amount(small[resource], resource)}`;
  element.small.style.width = `${whole ? (100 * small[resource]) / whole : 0}%`;
  const held = Math.max(0, Math.min(bar.held, whole - bar.used));
  element.held.title = `${amount(held, resource)} held${heldFor.slice(1).replace("held", "")}`;
  element.held.style.width = `${whole ? (100 * held) / whole : 0}%`;
  element.small.hidden = !small[resource];
  element.held.hidden = !held;
}

function drawNodes() {
  const names = parts.nodes ?? [];
  keep(nodes, names, at("nodes"), newNode);
  for (const name of names) drawNode(nodes.get(name), parts[`node/${name}`]);
  const there = new Set(names.flatMap((name) => parts[`node/${name}`].pods.map((pod) => pod.id)));
  for (const id of pods.keys()) if (!there.has(id)) pods.delete(id);
  // One pod is reached with the Tab key, the others from there.
  if (!document.querySelector(".pod[tabindex='0']")) {
    const first = document.querySelector("#nodes .pod");
    if (first) first.tabIndex = 0;
  }
  const { leftOut = 0, nodes: all = 0 } = parts.cluster ?? {};
  const nobody = !names.length && at("find").value ? "Nothing is called that." : "";
  at("left-out").textContent = nobody || `${leftOut} more of ${all} nodes: find one by its name.`;
  at("left-out").hidden = !nobody && !leftOut;
}

// VMs that move

function newWay() {
  const group = document.createElementNS(SVG, "g");
  const [path, dot, text] = ["path", "circle", "text"].map((tag) => document.createElementNS(SVG, tag));
  dot.setAttribute("r", 17);
  group.append(path, dot, text);
  at("ways").append(group);
  return { group, path, dot, text, shown: 0, percent: 0 };
}

function drawMoves() {
  const moves = parts.moves ?? [];
  for (const [id, way] of ways) {
    if (!moves.some((move) => move.id === id)) { way.group.remove(); ways.delete(id); }
  }
  for (const move of moves) {
    if (!ways.has(move.id)) ways.set(move.id, newWay());
    Object.assign(ways.get(move.id), { from: move.from, to: move.to, percent: move.percent });
    pods.get(move.to)?.style.setProperty("--copied", `${move.percent}%`);
  }
  if (moves.length && !moving) requestAnimationFrame(step);
}

let moving = false;

function centre(element, box) {
  const place = element.getBoundingClientRect();
  return [place.left + place.width / 2 - box.left, place.top + place.height / 2 - box.top];
}

function step() {
  moving = ways.size > 0;
  const box = at("cluster").getBoundingClientRect();
  for (const way of ways.values()) {
    const [from, to] = [pods.get(way.from), pods.get(way.to)];
    way.group.style.display = from && to ? "" : "none";
    if (!from || !to) continue;
    const [x1, y1] = centre(from, box);
    const [x2, y2] = centre(to, box);
    const bend = Math.max(x1, x2) + Math.min(90, Math.abs(y2 - y1) / 2);
    way.path.setAttribute("d", `M${x1} ${y1} C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`);
    way.shown = still.matches ? way.percent : way.shown + (way.percent - way.shown) * 0.06;
    const point = way.path.getPointAtLength((way.path.getTotalLength() * way.shown) / 100);
    way.dot.setAttribute("cx", point.x);
    way.dot.setAttribute("cy", point.y);
    way.text.setAttribute("x", point.x);
    way.text.setAttribute("y", point.y);
    way.text.textContent = `${Math.round(way.shown)}%`;
  }
  if (moving) requestAnimationFrame(step);
}

// Requests

function newRequest() {
  const box = make("details", "request");
  const head = make("summary");
  [box.name_, box.phase, box.wanted, box.now, box.toDo] =
    [["span", "name"], ["span", "phase"], ["p", "wanted"], ["p", "now"], ["p", "to-do"]].map(([tag, name]) => make(tag, name));
  box.soFar = make("ul");
  head.append(box.name_, box.phase);
  const story = make("div", "story");
  story.append(box.wanted, box.soFar, box.now, box.toDo);
  box.append(head, story);
  return box;
}

function drawRequest(box, request) {
  const before = box.phase.textContent;
  if (!before) box.open = !request.over;
  box.className = `request${request.done ? " done" : request.over ? " failed" : ""}`;
  box.name_.textContent = `${request.namespace}/${request.name}`;
  box.phase.textContent = request.phase;
  box.wanted.textContent = request.wanted;
  box.now.textContent = request.now;
  box.toDo.textContent = request.toDo;
  box.soFar.replaceChildren(...request.soFar.map((sentence) => make("li", "", sentence)));
  box.soFar.hidden = !request.soFar.length;
  if (before && before !== request.phase) at("said").textContent = `${request.name}: ${request.phase}. ${request.now}`;
}

function drawRequests() {
  const ids = parts.requests ?? [];
  keep(requests, ids, at("requests"), newRequest);
  for (const id of ids) drawRequest(requests.get(id), parts[`request/${id}`]);
  at("no-requests").hidden = ids.length > 0;
}

// All of it

function draw() {
  const { guarded, told = "" } = parts.cluster ?? {};
  at("told").textContent = told;
  at("told").hidden = !told;
  const guard = at("guard");
  guard.hidden = guarded === null || guarded === undefined;
  guard.className = `guard ${guarded ? "up" : "down"}`;
  guard.textContent = guarded ? "guard is up" : "guard is down";
  drawNodes();
  drawMoves();
  drawRequests();
}

function link(state, text) {
  at("link").className = `link ${state}`;
  if (at("link").textContent !== text) at("link").textContent = text;
}

function listen() {
  clearTimeout(retry);
  source?.close();
  const find = at("find").value.trim();
  source = new EventSource(`news?find=${encodeURIComponent(find)}`);
  let fresh = true;
  source.onopen = () => { fresh = true; };
  source.onmessage = (event) => {
    // After a connection is made anew everything comes again, and what is gone does not.
    parts = Object.assign(fresh ? {} : parts, JSON.parse(event.data));
    fresh = false;
    link("live", "live");
    draw();
  };
  source.onerror = async () => {
    link("", "connection lost, trying again");
    if (source.readyState !== EventSource.CLOSED) return;
    retry = setTimeout(listen, TRY_AGAIN);
    const why = await whyNot(find);
    if (why) link("", why);
  };
}

async function whyNot(find) {
  // An EventSource does not tell what it was answered.
  const asked = new AbortController();
  try {
    const answer = await fetch(`news?find=${encodeURIComponent(find)}`, { signal: asked.signal });
    return answer.ok ? "" : (await answer.text()).trim();
  } catch {
    return ""; // nobody answers, and that is being said
  } finally {
    asked.abort();
  }
}

// Keys and clicks

function show(kind) {
  resource = kind;
  for (const name of ["cpu", "memory"]) at(name).setAttribute("aria-pressed", String(name === kind));
  draw();
}

function go(pod) {
  if (!pod) return;
  for (const other of document.querySelectorAll(".pod[tabindex='0']")) other.tabIndex = -1;
  pod.tabIndex = 0;
  pod.focus();
}

function walk(pod, key) {
  const there = [...pod.parentElement.querySelectorAll(".pod")];
  const index = there.indexOf(pod);
  if (key === "ArrowLeft") return go(there[index - 1]);
  if (key === "ArrowRight") return go(there[index + 1]);
  const all = [...document.querySelectorAll("#nodes .bar")].filter((bar) => bar.querySelector(".pod"));
  const others = [...(all[all.indexOf(pod.parentElement) + (key === "ArrowUp" ? -1 : 1)]?.querySelectorAll(".pod") ?? [])];
  return go(others[Math.min(index, others.length - 1)]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && at("find").value) { at("find").value = ""; listen(); return; }
  if (event.target === at("find")) return;
  const pod = event.target.closest?.(".pod");
  if (pod && event.key.startsWith("Arrow")) { event.preventDefault(); walk(pod, event.key); return; }
  const known = {
    "/": () => at("find").focus(), c: () => show("cpu"), m: () => show("memory"), "?": () => at("help").click(),
    r: () => document.querySelector("#requests summary")?.focus(),
  }[event.key];
  if (known) { event.preventDefault(); known(); }
});

const tell = (event) => {
  const pod = event.target.closest?.(".pod[data-id]");
  if (pod) at("about").textContent = pod.about;
};
for (const kind of ["focusin", "pointerover"]) at("nodes").addEventListener(kind, tell);
at("nodes").addEventListener("click", (event) => go(event.target.closest(".pod")));
at("cpu").addEventListener("click", () => show("cpu"));
at("memory").addEventListener("click", () => show("memory"));
at("help").addEventListener("click", () => {
  at("keys").hidden = !at("keys").hidden;
  at("help").setAttribute("aria-expanded", String(!at("keys").hidden));
});
let typed = 0;
at("find").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(listen, 200); });
at("search").addEventListener("submit", (event) => event.preventDefault());

listen();
