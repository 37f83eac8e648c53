// The stream browser: pages of a stream or of a shard's log, and new events as they come.

import { byId, isolated, say } from "./elements.js";
import { eventItem } from "./event.js";
import { Refused, ask } from "./server.js";
import { follow, pathOf } from "./tail.js";

const PAGE = 25;
// Events that a live list keeps.
const KEPT = 200;

// What is shown: `first` is the path of the first page, `next` that of the next one; `last` the
// stream's last revision.
let shown = null;
let tail = null;
let wantsToken = () => {};

const state = (text) => say(byId("browse-state"), text);

const explain = (error) => {
  if (!(error instanceof Refused)) return `The answer is not understood: ${error.message}`;
  if (error.status === 401) wantsToken();
  return `Not shown: ${error.message}`;
};

const buttons = () => {
  byId("first").disabled = !shown;
  byId("next").disabled = !shown?.next;
  byId("live").disabled = !shown?.stream;
  byId("live").setAttribute("aria-pressed", String(tail !== null));
};

const stop = () => {
  tail?.abort();
  tail = null;
};

const openNamed = (stream) => {
  byId("stream").value = stream;
  byId("kind").value = "";
  openStream();
};

const item = (event, fresh) => eventItem(event, fresh, shown.stream ? null : openNamed);

const place = (page) => {
  if (!shown.stream) return `The newest events of shard ${shown.shard}, newest first.`;
  const name = isolated(shown.stream);
  if (page.last_revision === null || page.last_revision === undefined) {
    return `Stream ${name} has no events.`;
  }
  const number = (page.last_revision + 1).toLocaleString("en");
  const events = page.last_revision === 0 ? "one event" : `${number} events`;
  if (page.events.length === 0) return `Stream ${name}: ${events}, none of them here.`;
  const [one, two] = [page.events[0].revision, page.events.at(-1).revision];
  return `Stream ${name}: ${events}; here #${one} to #${two}.`;
};

const load = async (path) => {
  const mine = shown;
  state("Reading …");
  try {
    const page = await ask(path);
    if (mine !== shown) return;
    // A log is read upwards.
    if (!shown.stream) page.events.reverse();
    shown.next = shown.stream ? page.next : null;
    shown.last = page.last_revision ?? null;
    byId("events").replaceChildren(...page.events.map((event) => item(event, false)));
    state(place(page));
  } catch (error) {
    if (mine !== shown) return;
    state(explain(error));
  }
  buttons();
};

const openStream = () => {
  stop();
  const [stream, kind] = [byId("stream").value, byId("kind").value];
  const direction = byId("direction").value;
  const asked = { limit: PAGE, direction, consistency: "any", type: kind };
  shown = { stream, kind, first: pathOf(stream, asked), next: null, last: null };
  return load(shown.first);
};

const openLog = (shard, committed) => {
  stop();
  const from = Math.max(1, committed - PAGE + 1);
  const first = `/v1/shards/${shard}/events?from_lsn=${from}&limit=${PAGE}&consistency=any`;
  shown = { stream: null, shard, first, next: null, last: null };
  return load(first);
};

const live = () => {
  if (tail) {
    stop();
    buttons();
    return state(`Stream ${isolated(shown.stream)}: no longer live.`);
  }
  tail = new AbortController();
  const { signal } = tail;
  const { stream, kind, last } = shown;
  const events = byId("events");
  let seen = 0;
  const told = (event) => {
    seen += 1;
    events.prepend(item(event, true));
    while (events.children.length > KEPT) events.lastElementChild.remove();
  };
  const trouble = (error) => {
    const news = seen === 1 ? "1 new event" : `${seen.toLocaleString("en")} new events`;
    state(error ? explain(error) : `Stream ${isolated(stream)}: live, newest first, ${news}.`);
  };
  trouble(null);
  buttons();
  follow({ stream, kind, from: last === null ? 0 : last + 1, told, trouble, signal });
};

// Live begins with the newest page on top, whatever page was shown.
const beginLive = async () => {
  if (!tail && byId("direction").value !== "backwards") {
    byId("direction").value = "backwards";
    await openStream();
  } else if (!tail) {
    await load(shown.first);
  }
  live();
};

// `askToken` is called when the node wants one; `committed` tells a shard's committed LSN.
export const startBrowser = (askToken, committed) => {
  wantsToken = askToken;
  byId("browse-form").addEventListener("submit", (event) => {
    event.preventDefault();
    openStream();
  });
  byId("log-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const shard = Number(byId("log-shard").value);
    openLog(shard, committed(shard));
  });
  byId("first").addEventListener("click", () => {
    stop();
    load(shown.first);
  });
  byId("next").addEventListener("click", () => {
    stop();
    load(shown.next);
  });
  byId("live").addEventListener("click", beginLive);
};
