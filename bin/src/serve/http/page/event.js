// One event as an item of the list.

import { make } from "./elements.js";
import { moment } from "./units.js";

// Longer texts are folded.
const SHOWN_CHARACTERS = 4000;

// JSON with what fits on a line left on it.
const LINE_CHARACTERS = 76;
const pretty = (value, indent = "") => {
  const flat = JSON.stringify(value);
  const leaf = value === null || typeof value !== "object" || JSON.isRawJSON?.(value);
  if (leaf || flat === "[]" || flat === "{}") return flat;
  const inner = `${indent}  `;
  const list = Array.isArray(value);
  const parts = list
    ? value.map((item) => pretty(item, inner))
    : Object.entries(value).map(([name, item]) =>
      `${JSON.stringify(name)}: ${pretty(item, inner)}`);
  const [open, close] = list ? "[]" : "{}";
  const line = open + parts.join(", ") + close;
  if (line.length + indent.length <= LINE_CHARACTERS && !line.includes("\n")) return line;
  return `${open}\n${parts.map((part) => inner + part).join(",\n")}\n${indent}${close}`;
};

// What is in the payload: text to show, and a word for what it is.
const payload = (event, name) => {
  if (event[name] !== undefined) return [pretty(event[name]), "JSON"];
  if (event[`${name}_text`] !== undefined) return [event[`${name}_text`], "text"];
  if (event[`${name}_base64`] !== undefined) return [event[`${name}_base64`], "base64"];
  return null;
};

const block = (text) => {
  if (text.length <= SHOWN_CHARACTERS) return [make("pre", {}, text)];
  const pre = make("pre", {}, `${text.slice(0, SHOWN_CHARACTERS)} …`);
  const all = () => {
    pre.textContent = text;
    button.remove();
  };
  const number = text.length.toLocaleString("en");
  const button = make("button", { type: "button", onclick: all }, `Show all ${number} characters`);
  return [pre, button];
};

// `openStream` is told the name of the stream to show; null if it is the one that is shown.
export const eventItem = (event, fresh, openStream) => {
  const head = make("div", { class: "event-head" });
  if (openStream) {
    const show = () => openStream(event.stream);
    head.append(make("button", { type: "button", class: "link", onclick: show }, event.stream));
  }
  head.append(
    make("span", { class: "soft" }, `#${event.revision}`),
    make("strong", {}, event.type),
    make("time", { class: "soft", datetime: event.time }, moment(Date.parse(event.time))),
    make("span", { class: "soft" }, `LSN ${event.lsn}`));
  const item = make("li", { class: fresh ? "fresh" : null }, head);
  const data = payload(event, "data");
  if (!data) item.append(make("pre", { class: "soft" }, "no data"));
  else {
    if (data[1] === "base64") head.append(make("span", { class: "soft" }, "data as base64"));
    item.append(...block(data[0]));
  }
  const metadata = payload(event, "metadata");
  const more = make("details", {}, make("summary", {}, metadata ? "Metadata and id" : "Id"));
  more.append(make("pre", {}, `id ${event.id}`));
  if (metadata) more.append(...block(metadata[0]));
  item.append(more);
  return item;
};
