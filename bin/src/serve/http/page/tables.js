// The tables: shards, and changes of the lead.

import { byId, list, make, say } from "./elements.js";
import { bytes, count, milliseconds, moment, nodeName, rate, shortIds } from "./units.js";
import { serving } from "./nodes.js";

const CHANGES_MAX = 50;
const LEAD = new Set(["leads"]);

const row = (cells, kinds) => make("tr", {}, ...cells.map((_, index) =>
  make(index === 0 && kinds[0] === "head" ? "th" : "td", {
    class: kinds[index] === "head" ? null : kinds[index],
    scope: kinds[index] === "head" ? "row" : null,
  })));

const fillTable = (table, rows, kinds, empty) => {
  const body = table.tBodies[0];
  if (rows.length === 0) {
    if (!body.querySelector(".void")) {
      const cell = make("td", { class: "void", colspan: kinds.length }, empty);
      body.replaceChildren(make("tr", {}, cell));
    }
    say(body.querySelector(".void"), empty);
    return;
  }
  if (body.querySelector(".void")) body.replaceChildren();
  list(body, rows, ({ cells }) => row(cells, kinds), (element, { cells, lead }) => {
    element.classList.toggle("lead", Boolean(lead));
    cells.forEach((text, index) => say(element.children[index], text));
  });
};

const SHARD_KINDS = ["head", "", "", "", "", "", "", ""];

export const showShards = (nodes, series) => {
  const shown = serving(nodes);
  const other = nodes.find((node) => node !== shown)?.status;
  const { status } = shown ?? {};
  const newest = status ? series.newest(status.node) : null;
  const rows = (status?.shards ?? []).map((shard, index) => {
    const rates = newest?.shards[index];
    return {
      cells: [
        count(shard.shard),
        count(shard.committed),
        count(shard.lag),
        rate(rates?.events),
        count(shard.lsn),
        count(other?.shards[index]?.committed),
        rate(rates?.writes),
        rates ? bytes(rates.bytes) : "–",
      ],
    };
  });
  fillTable(byId("shard-table"), rows, SHARD_KINDS, "No shard is known.");
  const nothing = status && status.shards.every((shard) => shard.lsn === 0);
  const of = status ? `As node ${nodeName(status.node)} tells.` : "";
  say(byId("shards-note"), nothing ? `${of} Nothing has been appended yet.` : of);
  byId("shard-table").classList.toggle("alone", status?.role === "standalone");
  showShardChoice(status?.shards.length ?? 0);
};

const showShardChoice = (number) => {
  byId("log-form").hidden = number === 0;
  const choice = byId("log-shard");
  list(choice, Array.from({ length: number }, (_, index) => index),
    () => make("option"),
    (option, index) => {
      say(option, String(index));
      option.value = String(index);
    });
};

const CHANGE_KINDS = ["text", "text", "", "text wrap", ""];

const changesOf = ({ status }) =>
  (status?.failovers ?? []).map((change) => ({ ...change, node: status.node }));

const pauseOf = (change) => {
  if (!LEAD.has(change.event)) return "";
  return typeof change.pause_ms === "number" ? milliseconds(change.pause_ms) : "not known";
};

export const showChanges = (nodes, remembered) => {
  for (const change of nodes.flatMap(changesOf)) {
    remembered.set(`${change.node} ${change.at_ms} ${change.event} ${change.reason}`, change);
  }
  const all = [...remembered.values()].sort((one, two) => two.at_ms - one.at_ms);
  for (const change of all.splice(CHANGES_MAX)) {
    remembered.delete(`${change.node} ${change.at_ms} ${change.event} ${change.reason}`);
  }
  const rows = all.map((change) => ({
    lead: LEAD.has(change.event),
    cells: [
      moment(change.at_ms),
      nodeName(change.node),
      count(change.epoch),
      shortIds(LEAD.has(change.event) ? `leads: ${change.reason}` : change.reason),
      pauseOf(change),
    ],
  }));
  const alone = nodes.some(({ status }) => status?.role === "standalone");
  const empty = alone
    ? "A standalone node has no lead to change."
    : "None since the nodes started.";
  fillTable(byId("change-table"), rows, CHANGE_KINDS, empty);
  const note = rows.length
    ? "Newest first, of both nodes since they started; each by its own clock."
    : "";
  say(byId("changes-note"), note);
};
