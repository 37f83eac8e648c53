// Questions to the node that serves this page, with the token if it wants one.

const KEY = "duolog-token";
const PATIENCE_MS = 5000;

// Why there is no answer: `status` is 0 if nobody answered, else that of HTTP; `code` and `problem`
// are what the node says.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `HTTP ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.problem = problem;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

const headers = (accept) => {
  const given = token.get();
  return given ? { Accept: accept, Authorization: `Bearer ${given}` } : { Accept: accept };
};

// The answer whose status is good; its body is not read yet.
export const open = async (path, accept, signal) => {
  let response;
  try {
    // A redirect leads to the other node, which is another origin: its answer could not be read.
    const how = { headers: headers(accept), signal, cache: "no-store", redirect: "manual" };
    response = await fetch(path, how);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "no answer", code: "no_answer" });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem);
};

// Numbers that a float cannot hold keep their digits when they are printed again.
const exact = (_key, value, context) => {
  if (typeof value !== "number" || !context?.source || !JSON.rawJSON) return value;
  return String(value) === context.source ? value : JSON.rawJSON(context.source);
};

export const parse = (text) => JSON.parse(text, exact);

export const ask = async (path) => {
  const response = await open(path, "application/json", AbortSignal.timeout(PATIENCE_MS));
  try {
    return parse(await response.text());
  } catch {
    throw new Refused(0, { detail: "the answer broke off" });
  }
};

// What a probe says, in words; it needs no token.
export const startup = async () => {
  const response = await fetch("/startupz", { signal: AbortSignal.timeout(PATIENCE_MS) });
  return (await response.text()).trim();
};
