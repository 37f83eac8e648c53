// Asks the node once a second while somebody looks, and shows what it says.

import { startBrowser } from "./browser.js";
import { showCharts } from "./chart.js";
import { byId, say } from "./elements.js";
import { serving, showNodes } from "./nodes.js";
import { Series } from "./series.js";
import { Refused, ask, startup, token } from "./server.js";
import { showChanges, showShards } from "./tables.js";
import { clock, nodeName, seconds } from "./units.js";

const POLL_MS = 1000;

const series = new Series();
const changes = new Map();
let answer = null;
// When the newest answer came, by this machine's clock.
let answeredAt = null;

const banner = (text, mood = "", wantsToken = false) => {
  byId("banner").hidden = !text;
  byId("banner").className = `banner ${mood}`;
  say(byId("banner-text"), text);
  byId("banner-token").hidden = !wantsToken;
};

// Without the token that it wants the node need not be asked.
let lacksToken = false;

const askToken = () => {
  lacksToken = true;
  const dialog = byId("token-dialog");
  if (dialog.open) return;
  say(byId("token-wrong"), token.get() ? "That is not the node's token." : "");
  token.forget();
  byId("token").value = "";
  dialog.showModal();
};

const show = () => {
  const { nodes, at_ms: until } = answer;
  showNodes(nodes, series);
  showShards(nodes, series);
  showCharts(serving(nodes)?.status, series, until);
  showChanges(nodes, changes);
  const own = nodes.find((node) => node.this)?.status;
  if (!own) return;
  document.title = `Duolog ${nodeName(own.node)}: ${own.role}`;
  const version = `Duolog ${own.version}, commit ${own.commit}`;
  say(byId("footer-text"), `${version}. Cluster ${own.cluster}. Asked at ${clock(until)}.`);
};

const age = () => {
  if (answeredAt === null) return "";
  const old = seconds((performance.now() - answeredAt) / 1000);
  return ` What is shown is ${old} old.`;
};

const explain = async (error) => {
  document.body.classList.toggle("stale", answeredAt !== null);
  if (!(error instanceof Refused)) {
    console.error(error);
    banner(`This page cannot show what the node says: ${error.message}.${age()}`, "bad");
  } else if (error.status === 401) {
    askToken();
    banner("This node asks for its token.", "", true);
  } else if (error.code === "starting") {
    const words = await startup().catch(() => error.message);
    banner(`Not ready yet: ${words}.${age()}`);
  } else {
    const why = error.status === 0 ? "" : `: ${error.message}`;
    banner(`This node does not answer${why}.${age()}`, "bad");
  }
};

const poll = async () => {
  try {
    answer = await ask("/v1/cluster");
    answeredAt = performance.now();
    document.body.classList.remove("stale");
    banner("");
    series.add(answer);
    show();
  } catch (error) {
    await explain(error);
  }
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const seen = () => new Promise((resolve) => {
  if (!document.hidden) return resolve();
  return document.addEventListener("visibilitychange", resolve, { once: true });
});

const startToken = () => {
  byId("banner-token").addEventListener("click", askToken);
  byId("token-cancel").addEventListener("click", () => byId("token-dialog").close());
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(byId("token").value);
    lacksToken = false;
    byId("token-dialog").close();
  });
};

const committed = (shard) => serving(answer?.nodes ?? [])?.status?.shards[shard]?.committed ?? 0;

const run = async () => {
  startToken();
  startBrowser(askToken, committed);
  for (;;) {
    await seen();
    const began = performance.now();
    if (!lacksToken) await poll();
    await pause(Math.max(0, POLL_MS - (performance.now() - began)));
  }
};

run();
