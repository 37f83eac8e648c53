// What was seen of each node over time: rates and percentiles from the differences of answers.

export const STAGES = ["total", "queue", "write", "replicate", "commit"];
// Ten minutes of one answer per second.
const KEPT = 600;
// Answers further apart than this, ms, have a gap between them.
export const GAP_MS = 5000;

// The bounds of all buckets, microseconds (docs/METRICS.md, "Stages").
const BOUNDS = [];
for (let decade = 10; decade < 1e7; decade *= 10) {
  for (const step of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) BOUNDS.push(Math.round(step * decade));
}
BOUNDS.push(1e7);

const floorOf = (bound) => {
  const index = bound === null ? BOUNDS.length : BOUNDS.indexOf(bound);
  return index > 0 ? BOUNDS[index - 1] : 0;
};

// The percentile of what fell into the buckets since `before`, microseconds; null for nothing.
export const quantile = (now, before, part) => {
  const old = new Map(before.map(([bound, number]) => [bound, number]));
  const fell = now.map(([bound, number]) => [bound, number - (old.get(bound) ?? 0)]);
  const all = fell.reduce((sum, [, number]) => sum + number, 0);
  if (all <= 0) return null;
  let left = all * part;
  for (const [bound, number] of fell) {
    if (number > 0 && left <= number) {
      const floor = floorOf(bound);
      return bound === null ? floor : floor + (bound - floor) * (left / number);
    }
    left -= number;
  }
  return floorOf(null);
};

const sum = (numbers) => Object.values(numbers ?? {}).reduce((all, number) => all + number, 0);

// What one answer and the one before it say together.
const sample = (at, status, earlier) => {
  const seconds = (at - earlier.at) / 1000;
  const per = (now, before) => (now >= before ? (now - before) / seconds : null);
  const before = earlier.status;
  const latency = {};
  for (const stage of STAGES) {
    const [now, then] = [status.latency?.[stage], before.latency?.[stage]];
    if (!now || !then) continue;
    latency[stage] = {
      p50: quantile(now.buckets, then.buckets, 0.5),
      p99: quantile(now.buckets, then.buckets, 0.99),
    };
  }
  const total = (all) => all.shards.reduce((lsns, shard) => lsns + shard.committed, 0);
  return {
    at,
    latency,
    committed: per(total(status), total(before)),
    events: per(status.counts?.events ?? 0, before.counts?.events ?? 0),
    appends: per(sum(status.counts?.acks), sum(before.counts?.acks)),
    s3: per(status.s3_requests ?? 0, before.s3_requests ?? 0),
    cpu: per(status.cpu_us ?? 0, before.cpu_us ?? 0) / 1e4,
    shards: status.shards.map((shard, index) => {
      const old = before.shards[index] ?? shard;
      return {
        events: per(shard.committed, old.committed),
        writes: per(shard.writes, old.writes),
        bytes: per(shard.written_bytes, old.written_bytes),
      };
    }),
  };
};

// A process that started anew counts from nothing.
const restarted = (status, before) =>
  status.cpu_us < before.cpu_us || status.shards.length !== before.shards.length;

export class Series {
  constructor() {
    this.nodes = new Map();
  }

  // An answer of `/v1/cluster`.
  add(answer) {
    for (const { status } of answer.nodes) {
      if (!status) continue;
      const known = this.nodes.get(status.node);
      const now = { at: answer.at_ms, status };
      if (!known || restarted(status, known.last.status)) {
        this.nodes.set(status.node, { last: now, samples: known?.samples ?? [] });
      } else if (now.at > known.last.at) {
        known.samples.push(sample(now.at, status, known.last));
        known.samples.splice(0, known.samples.length - KEPT);
        known.last = now;
      }
    }
  }

  // The samples of a node, oldest first.
  of(node) {
    return this.nodes.get(node)?.samples ?? [];
  }

  newest(node) {
    return this.of(node).at(-1);
  }
}
