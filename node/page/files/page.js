// The page of a run: asks /api/status, /api/events and /api/steps once, then follows /api/stream.
// Every text of the run is put in as text, never as markup.
"use strict";

const POINTS_MAX = 16384;  // older ones share points beyond
const EVENTS_MAX = 256;
const ROWS_MAX = 400;
const COLOURS = 8;
const TOKEN_KEY = "swarmline-token";

const by = (id) => document.getElementById(id);
const run = {status: null, points: [], evals: [], events: [], over: false, silentSince: null};

// ---- Text -----------------------------------------------------------------------------------------

const known = (value) => value !== null && value !== undefined;
const fixed = (value, digits) => known(value) ? value.toFixed(digits) : "–";
const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const compact = new Intl.NumberFormat("en-US", {notation: "compact", maximumFractionDigits: 1});
const count = (value) => known(value) ? whole.format(value) : "–";
const short = (value) => !known(value) ? "–" : value < 10000 ? whole.format(value) : compact.format(value);
const percent = (ratio) => `${Math.round(100 * ratio)} %`;

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at + 1 < units.length) { value /= 1024; ++at; }
  return `${at === 0 ? whole.format(value) : value.toFixed(1)} ${units[at]}`;
}

function duration(seconds) {
  if (!known(seconds)) return "–";
  const all = Math.max(0, Math.round(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const d = Math.floor(all / 86400), h = Math.floor(all / 3600) % 24, m = Math.floor(all / 60) % 60, s = all % 60;
  if (d > 0) return `${d}d ${two(h)}h`;
  if (h > 0) return `${h}h ${two(m)}m`;
  return m > 0 ? `${m}m ${two(s)}s` : `${s}s`;
}

function clock(wallSeconds) {
  const at = new Date(1000 * wallSeconds);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time
    : `${at.toLocaleDateString("en-GB", {day: "numeric", month: "short"})} ${time}`;
}

// ---- Elements -------------------------------------------------------------------------------------

function make(name, options = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") element.className = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const cell = (content, kind = "") => make("td", {class: kind}, content);

function bar(ratio, kind = "") {
  const inner = make("i");
  inner.style.width = `${100 * Math.min(1, Math.max(0, ratio))}%`;
  return make("span", {class: `meter ${kind}`, "aria-hidden": "true"}, inner);
}

function withBar(ratio) {
  const content = document.createDocumentFragment();
  content.append(percent(ratio), bar(ratio));
  return content;
}

function fill(table, rows) {
  const shown = rows.slice(0, ROWS_MAX);
  if (rows.length > ROWS_MAX) {
    shown.push(make("tr", {}, make("td", {colspan: "9", class: "quiet"}, `and ${rows.length - ROWS_MAX} more`)));
  }
  by(table).tBodies[0].replaceChildren(...shown);
}

// ---- What is shown of the status ------------------------------------------------------------------

const GOOD = ["training", "evaluating", "done", "ready"];
const BAD = ["failed", "died", "lost"];
const mood = (state) => GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "between";
const nameOf = (peer) => peer.name || `peer ${peer.peer}`;

function layers(stage) {
  const last = stage.last_layer - 1;
  return last > stage.first_layer ? `layers ${stage.first_layer}–${last}` : `layer ${stage.first_layer}`;
}

// A peer keeps its colour as long as it lives.
const colourOf = (peer) => `c${(peer.peer + COLOURS - 1) % COLOURS}`;

function showHead(status) {
  by("run").textContent = status.run;
  document.title = `${status.run} · ${status.state} · Swarmline`;
  const state = by("state");
  state.textContent = run.silentSince ? "no answer" : status.state;
  state.className = `state ${run.silentSince ? "bad" : mood(status.state)}`;
  by("elapsed").textContent = status.elapsed_seconds > 0 ? `${duration(status.elapsed_seconds)} of training` : "";
  by("as-of").textContent = status.wall_seconds > 0 ? `As of ${clock(status.wall_seconds)}.` : "";
  const done = status.steps > 0 ? status.step / status.steps : 0;
  by("progress").setAttribute("aria-valuemax", String(status.steps));
  by("progress").setAttribute("aria-valuenow", String(status.step));
  by("progress-bar").style.width = `${100 * Math.min(1, done)}%`;
  by("progress-step").textContent = `step ${count(status.step)} of ${count(status.steps)}`;
  by("progress-rest").textContent = run.over || !known(status.eta_seconds) ? percent(done)
    : `${percent(done)}, about ${duration(status.eta_seconds)} left`;
  const sentences = [status.sentence, status.journal, status.era_sentence, status.segment_sentence].filter((text) => text);
  by("sentence").textContent = sentences.join(" · ");
  by("sentence").hidden = sentences.length === 0;
}

function tile(name, value, unit = "") {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, unit ? make("small", {}, ` ${unit}`) : ""));
}

// Two digits after the point, or three that count of less than 1.
const money = (amount) => known(amount)
  ? amount.toLocaleString("en", Math.abs(amount) < 1 ? {maximumSignificantDigits: 3}
    : {minimumFractionDigits: 2, maximumFractionDigits: 2}) : "–";

// Nothing where nobody says a price.
function costTiles(cost) {
  if (!cost) return [];
  const unit = cost.currency;
  const tiles = [tile("Cost", money(cost.total), cost.budget > 0 ? `of ${money(cost.budget)} ${unit}` : unit)];
  if (!run.over) tiles.push(tile("Cost an hour", money(cost.per_hour), unit));
  tiles.push(tile("Cost of a billion tokens", money(cost.per_billion_tokens), unit));
  return tiles;
}

function costFacts(status) {
  const cost = status.cost;
  if (!cost) return [];
  const part = (amount) => `${money(amount)} ${cost.currency}${cost.total > 0 ? `, ${percent(amount / cost.total)}` : ""}`;
  return [["Cost: peers, by the hour", part(cost.machines)],
    ["Cost: coordinator", part(cost.coordinator)],
    ["Cost: egress", `${part(cost.egress)}; ${bytes(cost.egress_bytes)}`],
    ["Cost of a step", `${money(cost.per_step)} ${cost.currency}`],
    ["Waste: idle peers", part(cost.idle)],
    ["Waste: waiting to train", part(cost.waiting)],
    ["Waste: joining", part(cost.joining)],
    ["Waste: steps computed again", `${part(cost.again)}; ${count(cost.steps_again)} steps`],
    ["Waste: states fetched by joiners and shadows",
      `${part(cost.fetched)}; ${bytes(cost.joiner_bytes)} and ${bytes(cost.shadow_bytes)}`],
    ["Peers that say no price", count(cost.unpriced)]];
}

function showTiles(status) {
  const alive = status.stages.flatMap((stage) => stage.peers).filter((peer) => peer.state === "ready").length;
  const wanted = status.stages.reduce((sum, stage) => sum + stage.wanted, 0);
  const speed = run.over ? status.mean_tokens_per_second ?? status.tokens_per_second : status.tokens_per_second;
  by("tiles").replaceChildren(
    tile("Loss", fixed(status.loss, 4), "nats"),
    tile("Held-out loss", fixed(status.held_out_loss, 4), known(status.held_out_loss) ? "nats" : ""),
    tile("Throughput", short(speed), "tokens/s"),
    tile("Tokens", short(status.tokens)),
    ...costTiles(status.cost),
    tile("Peers ready", run.over ? "–" : String(alive), run.over || !wanted ? "" : `of ${wanted}`),
    tile("In flight", run.over ? "–" : count(status.in_flight), run.over ? "" : "microbatches"));
}

function stageCard(stage) {
  const shares = make("div", {class: "shares", "aria-hidden": "true"});
  const list = make("ul");
  stage.peers.forEach((peer) => {
    if (peer.share > 0) {
      const part = make("i", {class: colourOf(peer)});
      part.style.width = `${100 * peer.share}%`;
      shares.append(part);
    }
    if (list.children.length === 12) return;
    const how = peer.state === "ready" ? percent(peer.share) : peer.state;
    list.append(make("li", {class: peer.state === "lost" ? "lost" : ""},
      make("span", {class: `dot ${colourOf(peer)}`, "aria-hidden": "true"}),
      make("b", {}, nameOf(peer)), make("span", {}, how)));
  });
  if (stage.peers.length > 12) list.append(make("li", {}, make("span", {}, `and ${stage.peers.length - 12} more`)));
  if (stage.peers.length === 0) list.append(make("li", {}, make("span", {class: "between-text"}, "waiting for a peer")));
  stage.shadows.forEach((shadow) => list.append(make("li", {}, make("b", {}, shadow.name || `peer ${shadow.peer}`),
    make("span", {}, `shadow, ${shadow.state}`))));
  return make("li", {class: "stage card"},
    make("h3", {}, `Stage ${stage.stage} `, make("span", {}, layers(stage))), shares, list);
}

const each = (sum, messages) => messages > 0 ? bytes(sum / messages) : "–";
const forwardBytes = (b) => b.forward_codec_bytes + b.forward_token_bytes + b.forward_framing_bytes;
const backwardBytes = (b) => b.backward_codec_bytes + b.backward_framing_bytes;

function boundaryMark(boundary) {
  return make("li", {class: "boundary"}, make("span", {class: "arrow", "aria-hidden": "true"}, "⇄"),
    make("span", {}, bytes(forwardBytes(boundary) + backwardBytes(boundary))), make("br"),
    make("span", {}, boundary.forward_codec === boundary.backward_codec ? boundary.forward_codec
      : `${boundary.forward_codec} / ${boundary.backward_codec}`));
}

function showPipeline(status) {
  const items = [];
  status.stages.forEach((stage) => {
    items.push(stageCard(stage));
    const boundary = status.boundaries.find((b) => b.from === stage.stage);
    if (boundary) items.push(boundaryMark(boundary));
  });
  by("pipeline").replaceChildren(...items);
}

function peerRow(stage, peer) {
  const state = peer.data || (known(peer.moves_to) && peer.moves_to !== stage.stage
    ? `${peer.state}, moves to stage ${peer.moves_to}` : peer.state);
  return make("tr", {}, make("th", {scope: "row"}, nameOf(peer)), cell(String(stage.stage)),
    cell(state, `${mood(peer.state)}-text`), cell(withBar(peer.share), "number"), cell(withBar(peer.busy), "number"),
    cell(count(peer.in_flight), "number"), cell(count(peer.microbatches), "number more"),
    cell(peer.address, "more nowrap"));
}

function boundaryRow(boundary, way, codec, error, sum, messages, speed) {
  return make("tr", {}, make("th", {scope: "row"}, `${boundary.from} → ${boundary.to}`), cell(way), cell(codec || "–"),
    cell(known(error) ? `${(100 * error).toPrecision(2)} %` : "–", "number more"), cell(each(sum, messages), "number"),
    cell(bytes(sum), "number"), cell(speed > 0 ? `${bytes(speed)}/s` : "–", "number more"));
}

function contributionRows(status) {
  const names = new Map();
  let all = 0;
  status.stages.forEach((stage) => stage.peers.forEach((peer) => {
    const of = names.get(nameOf(peer)) ?? {microbatches: 0, stages: new Set()};
    of.microbatches += peer.microbatches;
    of.stages.add(stage.stage);
    all += peer.microbatches;
    names.set(nameOf(peer), of);
  }));
  return [...names.entries()].sort((a, b) => b[1].microbatches - a[1].microbatches).map(([name, of]) => {
    const share = all > 0 ? of.microbatches / all : 0;
    return make("tr", {}, make("th", {scope: "row"}, name), cell(count(of.microbatches), "number"),
      cell(bar(share, "long")), cell([...of.stages].sort((a, b) => a - b).join(", ")));
  });
}

function showTables(status) {
  fill("peers", status.stages.flatMap((stage) => stage.peers.map((peer) => peerRow(stage, peer))));
  fill("boundaries", status.boundaries.flatMap((b) => [
    boundaryRow(b, "forward", b.forward_codec, b.forward_error, forwardBytes(b), b.microbatches, b.forward_bytes_per_second),
    boundaryRow(b, "back", b.backward_codec, b.backward_error, backwardBytes(b), b.gradients, b.backward_bytes_per_second)]));
  fill("contributions", contributionRows(status));
  by("relays-card").hidden = status.relays.length === 0;
  fill("relays", status.relays.map((relay) => make("tr", {}, make("th", {scope: "row"}, relay.name), cell(relay.address),
    cell(count(relay.links), "number"), cell(bytes(relay.bytes), "number"))));
  const fact = (name, value) => make("tr", {}, cell(name), cell(value));
  const newest = run.points.at(-1);
  fill("facts", [
    fact("Averaging, between the peers of a stage", bytes(status.reduce_bytes)),
    fact("Through the coordinator", bytes(status.control_bytes)),
    fact("Checkpoints to the coordinator", bytes(status.checkpoint_bytes)),
    fact("Newest checkpoint", status.checkpoint || "none yet"),
    fact("Second tries of microbatches", count(status.second_tries)),
    fact("Returns to a checkpoint", count(status.era)),
    ...costFacts(status).map(([name, value]) => fact(name, value)),
    fact("Unigram entropy of the data", fixed(status.unigram_entropy, 3)),
    fact("Bigram entropy, held out", fixed(status.bigram_entropy, 3)),
    ...(newest ? [fact("Learning rate", newest.learning_rate.toPrecision(3)),
      fact("Gradient norm", newest.gradient_norm.toPrecision(3))] : [])]);
}

const WORRYING = ["peer_lost", "peer_failed", "new_era", "unprotected", "waiting", "out_of_reach", "journal"];
// Logs of an earlier format tell no levels.
const isBad = (event) => event.level ? event.level !== "info" && event.level !== "debug" : WORRYING.includes(event.kind);

function showEvents() {
  fill("events", run.events.slice().reverse().map((event) => make("tr", {}, cell(clock(event.wall_seconds)),
    make("td", {}, make("span", {class: `events-kind${isBad(event) ? " bad" : ""}`},
      event.kind.replaceAll("_", " ")), event.detail ? ` ${event.detail}` : ""))));
}

// ---- Plots ----------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// At most `most` round numbers of [low, high].
function ticks(low, high, most) {
  const rough = (high - low) / most;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const all = [];
  for (let at = Math.ceil(low / step); at <= high / step + 1e-9; ++at) all.push(at * step);
  all.digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return all;
}

function axisOf() {
  const axis = by("axis").value;
  if (axis === "step") return {value: (point) => point.step, text: short, unit: "steps"};
  const begin = run.points[0] ? run.points[0].wall_seconds - run.points[0].seconds : 0;
  if (axis === "minutes") return {value: (point) => (point.wall_seconds - begin) / 60, text: (v) => `${short(v)} min`, unit: "minutes"};
  let sum = 0;
  const tokens = new Map(run.points.map((point) => [point, sum += point.tokens]));
  const steps = run.points.map((point) => point.step);
  const sums = [...tokens.values()];
  const at = (step) => { let i = steps.findIndex((each) => each >= step); return i < 0 ? sum : sums[i]; };
  return {value: (point) => tokens.get(point) ?? at(point.step), text: (v) => compact.format(v), unit: "tokens"};
}

// A moving average over about a fortieth of the line, the same from both ends, so that it does not lag. Points
// are [x, y, weight]; without one, they weigh the same.
function smoothed(line) {
  const keep = 1 - Math.min(1, 90 / line.length);
  const pass = (points) => {
    let sum = 0, weight = 0;
    return points.map(([, y, w = 1]) => {
      sum = keep * sum + w * y;
      weight = keep * weight + w;
      return [sum, weight];
    });
  };
  const there = pass(line), back = pass(line.slice().reverse()).reverse();
  return line.map(([x, y, w = 1], i) => [x,
    (there[i][0] + back[i][0] - w * y) / (there[i][1] + back[i][1] - w)]);
}

// lines: [{label, kind, dots, points: [[x, y], ...]}]; the first one's label and value follow the pointer, too.
class Plot {
  constructor(id, text) {
    this.svg = by(id);
    this.legend = by(`${id}-legend`);
    this.text = text;
    this.lines = [];
    this.pointer = null;
    const moved = (event) => { this.pointer = event.clientX - this.svg.getBoundingClientRect().left; this.showPointer(); };
    this.svg.addEventListener("pointermove", moved);
    this.svg.addEventListener("pointerdown", moved);
    this.svg.addEventListener("pointerleave", () => { this.pointer = null; this.showPointer(); });
  }

  show(lines, levels, axis) {
    this.lines = lines;
    this.levels = levels;
    this.axis = axis;
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    const all = lines.flatMap((line) => line.points);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    if (all.length === 0 || width === 0) {
      this.svg.append(draw("text", {x: width / 2, y: height / 2, "text-anchor": "middle"}, "no step is done yet"));
      return this.showPointer();
    }
    const xs = all.map(([x]) => x), ys = all.map(([, y]) => y).concat(levels.map((level) => level.y));
    const range = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    let [x0, x1] = range(xs), [y0, y1] = range(ys);
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    const pad = Math.max((y1 - y0) * .06, Math.abs(y1) * 1e-3, 1e-9);
    y0 = y0 >= 0 ? Math.max(0, y0 - pad) : y0 - pad;
    y1 += pad;
    const left = 46, right = 10, top = 8, bottom = 22;
    this.x = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
    this.y = (y) => top + (y1 - y) / (y1 - y0) * (height - top - bottom);
    const rows = ticks(y0, y1, 5);
    for (const y of rows) {
      this.svg.append(draw("line", {x1: left, x2: width - right, y1: this.y(y), y2: this.y(y), class: "grid"}),
        draw("text", {x: left - 6, y: this.y(y) + 4, "text-anchor": "end"}, this.text(y, rows.digits)));
    }
    for (const x of ticks(x0, x1, Math.max(2, Math.floor(width / 90)))) {
      this.svg.append(draw("text", {x: this.x(x), y: height - 6, "text-anchor": "middle"}, axis.text(x)));
    }
    this.svg.append(draw("line", {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "edge"}));
    for (const level of levels) {
      this.svg.append(draw("path", {d: `M${left} ${this.y(level.y)}H${width - right}`, class: "quiet-line"}));
    }
    for (const line of lines) this.svg.append(...this.drawn(line));
    this.cursor = draw("line", {y1: top, y2: height - bottom, class: "cursor", visibility: "hidden"});
    this.svg.append(this.cursor);
    this.showPointer();
  }

  drawn(line) {
    const place = ([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
    const path = (points, kind) => draw("path", {d: `M${points.map(place).join("L")}`, class: kind});
    if (line.points.length === 0) return [];
    if (line.dots) {
      return [path(line.points, line.kind), ...(line.points.length > 80 ? [] : line.points.map(([x, y]) =>
        draw("circle", {cx: this.x(x), cy: this.y(y), r: 2.6, class: line.kind})))];
    }
    if (line.points.length === 1) return [draw("circle", {cx: this.x(line.points[0][0]), cy: this.y(line.points[0][1]), r: 2.6, class: line.kind})];
    if (!by("smooth").checked || line.points.length < 40) return [path(line.points, line.kind)];
    return [path(line.points, `${line.kind} raw`), path(smoothed(line.points), line.kind)];
  }

  // The values at the pointer, or the newest.
  showPointer() {
    const inside = this.pointer !== null && this.lines.some((line) => line.points.length > 0) && this.x;
    const parts = [];
    let shown = null;
    for (const line of this.lines) {
      if (line.points.length === 0) continue;
      let point = line.points.at(-1);
      if (inside) for (const each of line.points) if (Math.abs(this.x(each[0]) - this.pointer) < Math.abs(this.x(point[0]) - this.pointer)) point = each;
      shown ??= point;
      parts.push(make("span", {}, make("i", {class: line.kind}), `${line.label} `, make("b", {}, this.text(point[1]))));
    }
    for (const level of this.levels ?? []) {
      parts.push(make("span", {}, make("i", {class: "quiet-line"}), `${level.label} `, make("b", {}, this.text(level.y))));
    }
    if (inside && shown) parts.unshift(make("span", {}, `at ${this.axis.text(shown[0])}${this.axis.unit === "minutes" ? "" : ` ${this.axis.unit}`}`));
    this.legend.replaceChildren(...parts);
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside && shown) for (const name of ["x1", "x2"]) this.cursor.setAttribute(name, this.x(shown[0]));
  }
}

const plots = {loss: new Plot("loss", (v, digits = 3) => v.toFixed(digits)), speed: new Plot("speed", short)};

function showPlots() {
  const axis = axisOf();
  const at = (points, value) => points.filter((point) => Number.isFinite(value(point))).map((point) => [axis.value(point), value(point)]);
  const levels = known(run.status?.bigram_entropy) && run.points.length > 0 ? [{y: run.status.bigram_entropy, label: "bigram entropy"}] : [];
  plots.loss.show([{label: "training", kind: "blue", points: at(run.points, (point) => point.loss ?? NaN)},
    {label: "held-out", kind: "orange", dots: true, points: at(run.evals, (point) => point.loss)}], levels, axis);
  const timed = run.points.filter((point) => point.seconds > 0);
  plots.speed.show([{label: "tokens/s", kind: "blue", points: timed.map((point) => [axis.value(point), point.tokens / point.seconds, point.seconds])}], [], axis);
}

// ---- What comes in --------------------------------------------------------------------------------

function addPoint(point) {
  const points = run.points;
  while (points.length > 0 && points.at(-1).step >= point.step) points.pop();
  points.push(point);
  if (points.length <= POINTS_MAX) return;
  const half = POINTS_MAX / 2, thinner = [];
  for (let i = 0; i < half; i += 2) thinner.push(points[i + 1]);
  run.points = thinner.concat(points.slice(half));
}

function addEval(each) {
  while (run.evals.length > 0 && run.evals.at(-1).step >= each.step) run.evals.pop();
  run.evals.push(each);
}

function addEvent(event) {
  run.events.push(event);
  if (run.events.length > EVENTS_MAX) run.events.shift();
}

let drawnAt = 0, planned = false;
function show() {  // soon, and not all the time
  if (planned) return;
  planned = true;
  setTimeout(() => requestAnimationFrame(() => {
    planned = false;
    drawnAt = performance.now();
    if (!run.status) return;
    by("main").hidden = false;
    showHead(run.status);
    showTiles(run.status);
    showPipeline(run.status);
    showTables(run.status);
    showEvents();
    showPlots();
  }), Math.max(0, drawnAt + 250 - performance.now()));
}

const TAKES = {status: takeStatus, step: addPoint, eval: addEval, event: addEvent, end: () => { run.over = true; }};

function takeStatus(status) {
  run.status = status;
  run.over = ["done", "stopped", "failed", "died"].includes(status.state);
}

// ---- The server -----------------------------------------------------------------------------------

class Refused extends Error {}

function token() {
  const given = new URLSearchParams(location.search).get("token");
  if (given) {
    sessionStorage.setItem(TOKEN_KEY, given);
    history.replaceState(null, "", location.pathname);  // nobody reads it over a shoulder
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

async function ask(path) {
  const answer = await fetch(path, {headers: {Authorization: `Bearer ${token()}`}, cache: "no-store"});
  if (answer.status === 401 || answer.status === 403) throw new Refused(await answer.text());
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the server answered ${answer.status}`);
  return answer;
}

async function catchUp() {
  takeStatus(await (await ask("/api/status")).json());
  run.events = (await (await ask("/api/events")).json()).events;
  for (let from = run.points.length > 0 ? run.points.at(-1).step + 1 : 0; from !== null;) {
    const part = await (await ask(`/api/steps?from=${from}`)).json();
    part.steps.forEach(addPoint);
    part.evals.forEach(addEval);
    from = part.next;
  }
}

// What happens while it catches up is in the stream, too: a step that comes twice counts once.
async function follow() {
  const stream = await ask("/api/stream");
  await catchUp();
  run.silentSince = null;
  by("token").hidden = true;
  say("");
  show();
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split("\n\n");
    text = whole.pop();
    for (const each of whole) {
      const lines = each.split("\n");
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) TAKES[field("event")]?.(JSON.parse(data));
    }
    show();
  }
}

function say(text) {
  by("notice").textContent = text;
  by("notice").hidden = text === "";
}

function pause(seconds) { return new Promise((resolve) => setTimeout(resolve, 1000 * seconds)); }

async function main() {
  for (let wait = 1; ; wait = Math.min(10, 2 * wait)) {
    try {
      await follow();
      wait = 1;
      if (!run.over) throw new Error("the stream ended");
      await pause(10);  // somebody may go on with it
    } catch (error) {
      if (error instanceof Refused) {
        by("state").textContent = "locked";
        by("token").hidden = false;
        say(sessionStorage.getItem(TOKEN_KEY) ? error.message.trim() : "");
        await new Promise((resolve) => { unlocked = resolve; });
        continue;
      }
      run.silentSince ??= Date.now();
      if (run.status && Date.now() - run.silentSince > 3000) {
        say(`Nobody has answered for ${duration((Date.now() - run.silentSince) / 1000)}: the run is over, or its coordinator is restarting. ` +
          `What it left is shown by: swarmline show runs/${run.status.run}`);
      }
      show();
      await pause(wait);
    }
  }
}

let unlocked = () => {};
by("token-go").addEventListener("click", () => {
  sessionStorage.setItem(TOKEN_KEY, by("token-text").value.trim());
  unlocked();
});
by("token-text").addEventListener("keydown", (event) => { if (event.key === "Enter") by("token-go").click(); });
for (const id of ["axis", "smooth"]) by(id).addEventListener("change", showPlots);
addEventListener("resize", show);
main();
