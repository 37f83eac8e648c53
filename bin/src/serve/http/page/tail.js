// New events of a stream as they come.

import { ask } from "./server.js";

// At most so often a stream is asked for news.
const LOOK_MS = 1000;
const PAGE = 100;

export const pathOf = (stream, parameters) => {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null);
  return `/v1/streams/${encodeURIComponent(stream)}/events?${new URLSearchParams(given)}`;
};

const visible = () => !document.hidden || new Promise((resolve) => {
  document.addEventListener("visibilitychange", resolve, { once: true });
});

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Follows a stream from a revision on until `signal` is aborted. `told` gets each event once, in
// order; `trouble` gets an error, or null when it is over.
export const follow = async ({ stream, kind, from, told, trouble, signal }) => {
  let next = from;
  while (!signal.aborted) {
    await visible();
    const began = performance.now();
    let more = false;
    try {
      const asked = { from: next, limit: PAGE, consistency: "any", type: kind };
      const page = await ask(pathOf(stream, asked));
      if (signal.aborted) return;
      trouble(null);
      page.events.forEach(told);
      const last = page.events.at(-1);
      more = page.next !== null;
      if (more) next = Number(new URL(page.next, location.href).searchParams.get("from"));
      else if (page.last_revision !== null) next = Math.max(next, page.last_revision + 1);
      if (last) next = Math.max(next, last.revision + 1);
    } catch (error) {
      if (signal.aborted) return;
      trouble(error);
    }
    const left = LOOK_MS - (performance.now() - began);
    if (left > 0) await pause(left);
  }
};
