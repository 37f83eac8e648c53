// Lines over time as SVG: one chart for rates, one per stage of an append.

import { byId, draw, make, say } from "./elements.js";
import { GAP_MS, STAGES } from "./series.js";
import { clock, microseconds, nodeName, rate, seconds } from "./units.js";

const SIZE = { width: 380, height: 150, left: 56, right: 8, top: 8, bottom: 20 };
// What a chart spans: the shortest of these, ms, that holds all samples.
const SPANS_MS = [60_000, 120_000, 300_000, 600_000];

const MEANINGS = {
  total: "Append, from socket to answer",
  queue: "Queue, until its block is written",
  write: "Write, durable on this disk",
  replicate: "Replicate, until the second copy",
  commit: "Commit, durable and covered",
};

// The steps 1, 2 and 5 of all decades around the value.
const stepBelow = (value) => {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].map((step) => step * unit).find((step) => step <= value * 1.000001) ?? unit;
};

const stepAbove = (value) => {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * unit).find((step) => step >= value * 0.999999);
};

// The scale of latencies: logarithmic, from step to step; few of them are marked.
const logarithmic = (values) => {
  const low = stepBelow(Math.max(1, Math.min(...values)));
  const high = stepAbove(Math.max(...values, low * 1.5));
  const place = (value) => Math.log10(Math.max(value, low) / low) / Math.log10(high / low);
  const steps = [];
  for (let tick = low; tick <= high * 1.000001; tick = stepAbove(tick * 1.1)) steps.push(tick);
  const decade = (tick) => Number.isInteger(Math.round(Math.log10(tick) * 1e6) / 1e6);
  const ticks = steps.length > 5 ? steps.filter(decade) : steps;
  return { ticks, place };
};

// The scale of rates: from nothing to a round number above all values.
const linear = (values) => {
  const most = Math.max(1, ...values);
  const high = stepAbove(most);
  return { ticks: [0, high / 2, high], place: (value) => value / high };
};

// The line's path; it breaks where nothing is known.
const path = (points, across, down) => {
  let text = "";
  let last = null;
  for (const { at, value } of points) {
    if (value === null || value === undefined) {
      last = null;
      continue;
    }
    const joined = last !== null && at - last <= GAP_MS;
    text += `${joined ? "L" : "M"}${across(at).toFixed(1)} ${down(value).toFixed(1)}`;
    if (!joined) text += "h0.1";
    last = at;
  }
  return text;
};

class Chart {
  constructor(title, lines, format, scale) {
    Object.assign(this, { title, lines, format, scale });
    this.keys = lines.map(({ name }, index) =>
      make("span", { class: index ? "key second" : "key" }, name));
    this.when = make("span", { class: "soft" });
    this.picture = draw("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img" });
    this.element = make("figure", {},
      make("figcaption", {}, make("strong", {}, title), ...this.keys, this.when), this.picture);
    this.pointed = null;
    this.picture.addEventListener("pointermove", (event) => {
      const box = this.picture.getBoundingClientRect();
      this.pointed = ((event.clientX - box.left) / box.width) * SIZE.width;
      this.show();
    });
    this.picture.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.show();
    });
  }

  // `series`: the points of each line; `fallback`: what to say while there are none.
  update(series, until, fallback) {
    Object.assign(this, { series, until, fallback });
    this.show();
  }

  show() {
    const { series, until } = this;
    if (!series) return;
    const { width, height, left, right, top, bottom } = SIZE;
    const oldest = Math.min(until, ...series.flatMap(([first]) => (first ? [first.at] : [])));
    const span = SPANS_MS.find((ms) => ms >= until - oldest) ?? SPANS_MS.at(-1);
    const from = until - span;
    const recent = series.map((points) => points.filter(({ at }) => at >= from));
    const values = recent.flat().map(({ value }) => value).filter((value) => value > 0);
    const across = (at) => left + ((at - from) / span) * (width - left - right);
    const scale = this.scale(values.length ? values : [1]);
    const down = (value) => height - bottom - scale.place(value) * (height - top - bottom);
    const grid = scale.ticks.flatMap((tick) => [
      draw("line", { class: "grid", x1: left, x2: width - right, y1: down(tick), y2: down(tick) }),
      draw("text", { class: "tick", x: left - 6, y: down(tick) + 4, "text-anchor": "end" },
        values.length ? this.format(tick) : ""),
    ]);
    const times = [[1, "start"], [0.5, "middle"], [0, "end"]].map(([part, anchor]) => {
      const text = part ? `−${seconds((span * part) / 1000)}` : "now";
      const x = across(until - span * part);
      return draw("text", { class: "tick", x, y: height - 5, "text-anchor": anchor }, text);
    });
    const lines = recent.map((points, index) =>
      draw("path", { class: index ? "line second" : "line", d: path(points, across, down) }));
    const marks = this.point(recent, across, down);
    this.picture.replaceChildren(...grid, ...times, ...lines.reverse(), ...marks);
  }

  // Says the values under the pointer, else the newest; marks them.
  point(recent, across, down) {
    const distance = ({ at }) => Math.abs(across(at) - this.pointed);
    const nearest = (points) => points.reduce(
      (best, point) => (best && distance(best) <= distance(point) ? best : point), null);
    const chosen = recent.map((points) =>
      this.pointed === null ? points.at(-1) : nearest(points));
    const said = chosen.map((point) => this.format(point?.value ?? null));
    const some = chosen.some((point) => typeof point?.value === "number");
    this.keys.forEach((key, index) => say(key, `${this.lines[index].name} ${said[index]}`));
    const at = this.pointed !== null && chosen[0] ? `at ${clock(chosen[0].at)}` : "";
    say(this.when, at || (some ? "" : this.fallback));
    const label = `${this.title}: ${this.keys.map((key) => key.textContent).join(", ")}`;
    this.picture.setAttribute("aria-label", label);
    if (this.pointed === null) return [];
    return chosen.flatMap((point, index) => (typeof point?.value === "number"
      ? [draw("circle", {
        class: index ? "dot second" : "dot", r: 3.5, cx: across(point.at), cy: down(point.value),
      })] : []));
  }
}

const charts = {};

const create = () => {
  const both = [{ name: "events/s" }, { name: "appends/s" }];
  charts.rate = new Chart("Appended", both, rate, linear);
  for (const stage of STAGES) {
    const lines = [{ name: "p50" }, { name: "p99" }];
    charts[stage] = new Chart(MEANINGS[stage], lines, microseconds, logarithmic);
  }
  byId("charts").append(...Object.values(charts).map((chart) => chart.element));
};

const sinceStart = (latency) => (latency?.count
  ? `since start ${microseconds(latency.p50_us)} / ${microseconds(latency.p99_us)}`
  : "none yet");

export const showCharts = (status, series, until) => {
  if (!charts.rate) create();
  if (!status) return;
  const samples = series.of(status.node);
  const points = (of) => samples.map((sample) => ({ at: sample.at, value: of(sample) }));
  charts.rate.update(
    [points((sample) => sample.events), points((sample) => sample.appends)], until, "");
  for (const stage of STAGES) {
    const lines = ["p50", "p99"].map((part) => points((sample) => sample.latency[stage]?.[part]));
    charts[stage].element.hidden = stage === "replicate" && status.role === "standalone";
    charts[stage].update(lines, until, sinceStart(status.latency?.[stage]));
  }
  const note = `Of node ${nodeName(status.node)}, second by second while this page is open.`;
  say(byId("latency-note"), note);
};
