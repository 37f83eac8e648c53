// One card per node: what it is, and what it is like.

import { byId, list, make, say } from "./elements.js";
import {
  bytes, count, milliseconds, nodeName, percent, rate, shortIds,
} from "./units.js";

const ROLES = {
  leader: ["Leader", "good", "takes appends"],
  follower: ["Follower", "good", "holds the second copy and serves reads"],
  standalone: ["Standalone", "good", "takes appends, without a second copy"],
  catching_up: ["Catching up", "warn", "copies what it lacks; its copy does not count yet"],
  promoting: ["Promoting", "warn", "about to lead"],
  booting: ["Booting", "warn", "looks at the lease"],
  fenced: ["Fenced", "bad", "neither takes appends nor follows"],
};

const COPIES = { peer: "other node", s3: "S3", disk: "none: this disk only" };

export const roleOf = (status) => ROLES[status?.role] ?? [status?.role ?? "Unknown", "warn", ""];

const present = (value) => value !== null && value !== undefined;

// `members`: the nodes in sync as the leader knows them; others learn of it late.
const facts = (node, newest, members) => {
  const { status } = node;
  const pair = status.role !== "standalone";
  const rows = [];
  if (pair) {
    const ahead = (members ?? status.in_sync).includes(status.node);
    rows.push(["Epoch", count(status.epoch)]);
    rows.push(["Lease remaining", present(status.lease_remaining_ms)
      ? milliseconds(status.lease_remaining_ms) : "none held"]);
    rows.push(["In sync", ahead ? "yes" : "no"]);
  }
  if (status.acks_go_to) rows.push(["Second copy", COPIES[status.acks_go_to] ?? status.acks_go_to]);
  rows.push(["Committed", `${rate(newest?.committed)} events/s`]);
  rows.push(["CPU", percent(newest?.cpu)]);
  rows.push(["Memory", bytes(status.resident_bytes)]);
  rows.push(["Connections", count(status.counts?.connections)]);
  rows.push(["Requests in flight", count(status.counts?.in_flight)]);
  if (pair) {
    rows.push(["S3 requests", `${count(status.s3_requests)} (${rate(newest?.s3)} /s)`]);
    rows.push(["Skew to other", milliseconds(status.skew_ms?.peer)]);
    rows.push(["Skew to S3", milliseconds(status.skew_ms?.s3)]);
  }
  rows.push(["Version", status.version ?? "–"]);
  return rows;
};

const sentence = (node) => {
  if (!node.reachable) return `${node.address ?? "this node"} does not answer: ${node.error}`;
  const { status } = node;
  const [, , meaning] = roleOf(status);
  if (status.role === "standalone") return meaning;
  const parts = [shortIds(status.status)];
  if (status.role === "fenced" || meaning) parts.push(meaning);
  return parts.filter(Boolean).join(" – ");
};

const createCard = () =>
  make("article", { class: "card" },
    make("h3", {},
      make("span", { class: "name" }),
      make("span", { class: "id" }),
      make("span", { class: "badge" })),
    make("p", { class: "sentence" }),
    make("p", { class: "why" }),
    make("dl"),
    make("p", { class: "way" }));

const way = (element, node) => {
  const target = node.http ? `http://${node.http}/` : null;
  if (element.dataset.target === (target ?? "")) return;
  element.dataset.target = target ?? "";
  element.replaceChildren(...(target ? [make("a", { href: target }, "Its own page")] : []));
};

const updateCard = (card, node, series, members) => {
  const part = (selector) => card.querySelector(selector);
  const { status } = node;
  say(part(".name"), node.this ? "This node" : "Other node");
  say(part(".id"), status ? nodeName(status.node) : "");
  part(".id").title = status?.node ?? "";
  const [word, mood] = node.reachable ? roleOf(status) : ["Unreachable", "bad"];
  say(part(".badge"), word);
  part(".badge").className = `badge ${mood}`;
  say(part(".sentence"), sentence(node));
  const reason = status?.reason ? `Last change: ${shortIds(status.reason)}` : "";
  say(part(".why"), reason);
  part(".why").hidden = !reason;
  const rows = status ? facts(node, series.newest(status.node), members) : [];
  list(part("dl"), rows,
    () => make("div", {}, make("dt"), make("dd")),
    (row, [name, value]) => {
      say(row.firstElementChild, name);
      say(row.lastElementChild, value);
    });
  way(part(".way"), node);
  part(".way").hidden = !node.http;
};

// The node that others go by: the one that takes appends, else this one.
export const serving = (nodes) => {
  const takes = ({ status }) => status?.role === "leader" || status?.role === "standalone";
  return nodes.find(takes) ?? nodes.find((node) => node.this && node.status);
};

const leading = (nodes) => nodes.find(({ status }) => status?.role === "leader")?.status;

const summary = (nodes) => {
  const own = nodes.find((node) => node.this)?.status;
  if (own?.role === "standalone") return "A standalone node takes appends.";
  const leader = leading(nodes);
  if (!leader) return "No node takes appends.";
  const whole = leader.in_sync.length > 1 && leader.acks_go_to === "peer";
  const copy = whole ? "the pair is whole" : `second copies go to ${COPIES[leader.acks_go_to]}`;
  return `Node ${nodeName(leader.node)} leads in epoch ${leader.epoch}; ${copy}.`;
};

export const showNodes = (nodes, series) => {
  const place = byId("node-cards");
  place.querySelector(".empty")?.remove();
  const members = leading(nodes)?.in_sync;
  list(place, nodes, createCard, (card, node) => updateCard(card, node, series, members));
  say(byId("summary"), summary(nodes));
};
