// Numbers with their units, as people read them.

const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const known = (value) => typeof value === "number" && Number.isFinite(value);

// Three digits that count.
const short = (value) => {
  if (value >= 100 || value === 0) return whole.format(value);
  return String(Number(value.toPrecision(value >= 10 ? 3 : 2)));
};

export const count = (value) => (known(value) ? whole.format(value) : NONE);

export const rate = (value) => (known(value) ? short(value) : NONE);

export const percent = (value) => (known(value) ? `${short(value)} %` : NONE);

export const microseconds = (value) => {
  if (!known(value)) return NONE;
  if (value < 1000) return `${short(value)} µs`;
  if (value < 1e6) return `${short(value / 1e3)} ms`;
  return `${short(value / 1e6)} s`;
};

export const milliseconds = (value) => {
  if (!known(value)) return NONE;
  const sign = value < 0 ? "−" : "";
  return sign + (value === 0 ? "0 ms" : microseconds(Math.abs(value) * 1e3));
};

export const bytes = (value) => {
  if (!known(value)) return NONE;
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (value >= 1024 && step < names.length - 1) [value, step] = [value / 1024, step + 1];
  return `${short(value)} ${names[step]}`;
};

export const seconds = (value) => {
  if (!known(value)) return NONE;
  if (value < 120) return `${whole.format(value)} s`;
  if (value < 7200) return `${whole.format(value / 60)} min`;
  return `${whole.format(value / 3600)} h`;
};

const pad = (number, width = 2) => String(number).padStart(width, "0");

// The reader's own time zone.
export const clock = (ms) => {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
};

export const moment = (ms) => {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${clock(ms)}.${pad(at.getMilliseconds(), 3)}`;
};

// The part of a node's id that people say.
export const nodeName = (id) => (id ? id.slice(0, 8) : NONE);

// Ids in a sentence, shortened like those elsewhere on the page.
export const shortIds = (text) =>
  text.replace(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, "$1");
