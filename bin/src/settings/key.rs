//! The table of keys: every setting's name, type, limits, default and one-line description.
//! Flags, environment variables, the file, `config show` and `config default` all follow from it.

use duolog_engine::limits::{
    BLOCKS_IN_FLIGHT_MAX, EVENT_MAX_BYTES_DEFAULT, IDEMPOTENCY_WINDOW_DEFAULT,
    SEGMENT_SIZE_BYTES_DEFAULT, SEGMENT_SIZE_BYTES_MAX, SEGMENT_SIZE_BYTES_MIN,
    SHARD_IN_FLIGHT_MAX,
};
use duolog_lease::limits::TIMING_MS_MAX;
use duolog_net::limits::SUBSCRIBER_STALL_MS_DEFAULT;

/// What a setting's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A path.
    Path,
    /// IP address and port.
    Address,
    /// IP address and port, or nowhere.
    AddressOrOff,
    /// A whole number within limits, both included.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number of bytes, optionally with `KiB`, `MiB` or `GiB`.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
        /// The number must be a multiple of this.
        unit: u64,
    },
    /// A text; `what` says which.
    Text {
        /// For messages.
        what: &'static str,
    },
    /// A text that is never shown.
    Secret,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A CPU list, or in the file one entry per shard.
    Cpus,
}

/// What holds when nobody says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// A fixed number.
    Number(u64),
    /// A fixed text.
    Text(&'static str),
    /// A fixed switch.
    Switch(bool),
    /// Nothing fixed: `means` says what happens, `example` shows a value.
    Unset {
        /// What happens without a value.
        means: &'static str,
        /// A value, as TOML.
        example: &'static str,
    },
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted name, as in the file.
    pub name: &'static str,
    /// Type and limits.
    pub kind: Kind,
    /// Default.
    pub fallback: Fallback,
    /// One line for people.
    pub doc: &'static str,
}

impl Key {
    /// The flag: `--shards-count`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    /// The environment variable: `DUOLOG_SHARDS_COUNT`.
    #[must_use]
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Its place in [`KEYS`].
    #[must_use]
    pub fn index(name: &str) -> Option<usize> {
        KEYS.iter().position(|key| key.name == name)
    }

    /// What is allowed, for messages and documents.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Switch => "true or false".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Address => "an IP address and port like 127.0.0.1:7400 or [::1]:7400".to_owned(),
            Kind::AddressOrOff => {
                "an IP address and port like 127.0.0.1:7402 or [::1]:7402, or off".to_owned()
            }
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Bytes { min, max, unit } => {
                let (min, max) = (write_bytes(min), write_bytes(max));
                let multiple = match unit {
                    1 => String::new(),
                    unit => format!(", a multiple of {}", write_bytes(unit)),
                };
                format!("a number of bytes from {min} to {max}{multiple}")
            }
            Kind::Text { what } => what.to_owned(),
            Kind::Secret => "a text without blanks".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Cpus => "a list of CPUs like \"2-9\" or \"0,2,4\", \
                           or in the file one entry per shard"
                .to_owned(),
        }
    }
}

/// `67108864` becomes `64 MiB`; what is no whole multiple stays a number.
#[must_use]
pub fn write_bytes(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Every setting's environment variable starts with this.
pub const ENV_PREFIX: &str = "DUOLOG_";

/// Most shards of a node. Each is a core; directories are numbered with three digits.
pub const SHARDS_MAX: u64 = 512;
/// Longest `shards.spin_us`: a thread that spins serves nobody else, and the watchdog looks every
/// few milliseconds.
pub const SPIN_US_MAX: u64 = 1000;
/// Largest `limits.event_max_bytes`: a block takes one append of 64 MiB beside its overhead.
pub const EVENT_MAX_BYTES_MAX: u64 = 64 << 20;

/// All settings, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    Key {
        name: "data_dir",
        kind: Kind::Path,
        fallback: Fallback::Unset {
            means: "must be given to serve",
            example: "\"/var/lib/duolog\"",
        },
        doc: "Directory that holds the log. Its file system must do direct I/O (no tmpfs).",
    },
    Key {
        name: "standalone",
        kind: Kind::Switch,
        fallback: Fallback::Switch(false),
        doc: "Serve alone, without a peer and without S3: every event has one copy, on this disk.",
    },
    Key {
        name: "max_clock_drift_ms",
        kind: Kind::Number { min: 1, max: TIMING_MS_MAX },
        fallback: Fallback::Number(500),
        doc: "How far the clocks may lie apart; so long before its lease ends a leader stops.",
    },
    Key {
        name: "listen.client",
        kind: Kind::Address,
        fallback: Fallback::Text("127.0.0.1:7400"),
        doc: "Address and port for clients.",
    },
    Key {
        name: "listen.peer",
        kind: Kind::Address,
        fallback: Fallback::Text("127.0.0.1:7401"),
        doc: "Address and port for the other node.",
    },
    Key {
        name: "listen.http",
        kind: Kind::AddressOrOff,
        fallback: Fallback::Text("127.0.0.1:7402"),
        doc: "Address and port for HTTP: probes and the API; off (or an empty text) closes it. \
              Give an http.token before others than this machine can reach it.",
    },
    Key {
        name: "advertise.client",
        kind: Kind::Text { what: "HOST:PORT" },
        fallback: Fallback::Unset {
            means: "listen.client",
            example: "\"events-1.example.org:7400\"",
        },
        doc: "Where clients reach this node; told to clients that ask the other one.",
    },
    Key {
        name: "advertise.peer",
        kind: Kind::Text { what: "HOST:PORT" },
        fallback: Fallback::Unset { means: "listen.peer", example: "\"10.0.0.1:7401\"" },
        doc: "Where the other node reaches this one.",
    },
    Key {
        name: "advertise.http",
        kind: Kind::Text { what: "HOST:PORT" },
        fallback: Fallback::Unset {
            means: "listen.http",
            example: "\"events-1.example.org:7402\"",
        },
        doc: "Where HTTP clients reach this node; where the other one redirects writes to.",
    },
    Key {
        name: "http.token",
        kind: Kind::Secret,
        fallback: Fallback::Unset { means: "nobody is asked for one", example: "\"...\"" },
        doc: "Bearer token that HTTP requests must carry; probes need none. Better given by the \
              environment than by a flag, which others see.",
    },
    Key {
        name: "heartbeat.interval_ms",
        kind: Kind::Number { min: 1, max: TIMING_MS_MAX },
        fallback: Fallback::Number(500),
        doc: "Pause between two heartbeats of the leader. The same on both nodes, as the next two.",
    },
    Key {
        name: "heartbeat.lease_duration_ms",
        kind: Kind::Number { min: 1, max: TIMING_MS_MAX },
        fallback: Fallback::Number(1500),
        doc: "How long a heartbeat carries the lease; then the follower challenges.",
    },
    Key {
        name: "shards.count",
        kind: Kind::Number { min: 1, max: SHARDS_MAX },
        fallback: Fallback::Unset {
            means: "the number of CPUs in shards.cpus, else in the process's affinity mask",
            example: "8",
        },
        doc: "Number of shards; fixed when the data directory is created.",
    },
    Key {
        name: "shards.cpus",
        kind: Kind::Cpus,
        fallback: Fallback::Unset { means: "no pinning", example: "\"2-9\"" },
        doc: "CPUs to pin the shards to: a list (one CPU per shard), or in the file an array \
              with one entry per shard.",
    },
    Key {
        name: "shards.spin_us",
        kind: Kind::Number { min: 0, max: SPIN_US_MAX },
        fallback: Fallback::Number(0),
        doc: "How long a shard with few busy clients looks for their next requests before it \
              sleeps, in microseconds. Saves waking the core; 0 never spins.",
    },
    Key {
        name: "log.segment_size_bytes",
        kind: Kind::Bytes {
            min: SEGMENT_SIZE_BYTES_MIN as u64,
            max: SEGMENT_SIZE_BYTES_MAX as u64,
            unit: 4096,
        },
        fallback: Fallback::Number(SEGMENT_SIZE_BYTES_DEFAULT as u64),
        doc: "Size of one segment file; each shard keeps a prepared one ready.",
    },
    Key {
        name: "log.blocks_in_flight",
        kind: Kind::Number { min: 1, max: BLOCKS_IN_FLIGHT_MAX as u64 },
        fallback: Fallback::Number(2),
        doc: "Group commits a shard may be writing at one time.",
    },
    Key {
        name: "log.idempotency_window",
        kind: Kind::Number { min: 1, max: 1 << 28 },
        fallback: Fallback::Number(IDEMPOTENCY_WINDOW_DEFAULT as u64),
        doc: "Appends with an idempotency key that each shard remembers.",
    },
    Key {
        name: "limits.event_max_bytes",
        kind: Kind::Bytes { min: 1 << 10, max: EVENT_MAX_BYTES_MAX, unit: 1 },
        fallback: Fallback::Number(EVENT_MAX_BYTES_DEFAULT as u64),
        doc: "Largest event: type, metadata and data together. An append may be 1 MiB larger.",
    },
    Key {
        name: "limits.connection_in_flight",
        kind: Kind::Number { min: 1, max: 65_536 },
        fallback: Fallback::Number(1024),
        doc: "Unanswered requests allowed on one connection; some more get Busy, then the \
              connection waits.",
    },
    Key {
        name: "limits.shard_in_flight",
        kind: Kind::Number { min: 1, max: SHARD_IN_FLIGHT_MAX as u64 },
        fallback: Fallback::Number(SHARD_IN_FLIGHT_MAX as u64),
        doc: "Unanswered requests allowed on one shard; more are answered with Busy.",
    },
    Key {
        name: "limits.subscriber_stall_ms",
        kind: Kind::Number { min: 100, max: 86_400_000 },
        fallback: Fallback::Number(SUBSCRIBER_STALL_MS_DEFAULT),
        doc: "A subscriber that takes nothing for so long, while there is more for it than its \
              window holds, is cut off. It can go on where it was.",
    },
    Key {
        name: "memory.hot_streams",
        kind: Kind::Number { min: 1, max: 1 << 28 },
        fallback: Fallback::Number(524_288),
        doc: "Stream heads each shard keeps in memory; others are looked up in index files.",
    },
    Key {
        name: "memory.recent_blocks_bytes",
        kind: Kind::Bytes { min: 64 << 10, max: 64 << 30, unit: 1 },
        fallback: Fallback::Number(32 << 20),
        doc: "Newest blocks each shard keeps in memory for readers at the end of the log.",
    },
    Key {
        name: "s3.bucket",
        kind: Kind::Text { what: "the name of a bucket" },
        fallback: Fallback::Unset { means: "no bucket, standalone only", example: "\"my-events\"" },
        doc: "Bucket for the lease and the chain.",
    },
    Key {
        name: "s3.subfolder",
        kind: Kind::Text { what: "the beginning of keys, without a slash at either end" },
        fallback: Fallback::Unset { means: "the bucket's root", example: "\"production/eu\"" },
        doc: "Where in the bucket the cluster's objects lie, so that several can share one.",
    },
    Key {
        name: "s3.endpoint",
        kind: Kind::Text { what: "https://HOST or https://HOST:PORT" },
        fallback: Fallback::Unset {
            means: "AWS, in s3.region",
            example: "\"https://s3.example.org\"",
        },
        doc: "Address of the store.",
    },
    Key {
        name: "s3.allow_http",
        kind: Kind::Switch,
        fallback: Fallback::Switch(false),
        doc: "Allow an endpoint that begins with http://, unencrypted.",
    },
    Key {
        name: "s3.region",
        kind: Kind::Text { what: "the name of a region" },
        fallback: Fallback::Unset {
            means: "AWS_REGION, AWS_DEFAULT_REGION, the profile's region, else us-east-1",
            example: "\"eu-central-1\"",
        },
        doc: "Region that requests are signed for.",
    },
    Key {
        name: "s3.addressing",
        kind: Kind::Choice(&["auto", "path", "virtual"]),
        fallback: Fallback::Text("auto"),
        doc: "Where the bucket's name goes: path is HOST/BUCKET/KEY, virtual is BUCKET.HOST/KEY; \
              auto is virtual on AWS and path elsewhere.",
    },
    Key {
        name: "s3.ca_file",
        kind: Kind::Path,
        fallback: Fallback::Unset {
            means: "the system's certificate authorities alone",
            example: "\"/etc/ssl/private-ca.pem\"",
        },
        doc: "Certificate authorities (PEM) that are trusted besides the system's.",
    },
    Key {
        name: "s3.access_key_id",
        kind: Kind::Text { what: "an access key id" },
        fallback: Fallback::Unset {
            means: "AWS_* variables, a profile, the container's or the instance's role",
            example: "\"AKIA0000000000000000\"",
        },
        doc: "Access key id. Goes together with s3.secret_access_key.",
    },
    Key {
        name: "s3.secret_access_key",
        kind: Kind::Secret,
        fallback: Fallback::Unset { means: "see s3.access_key_id", example: "\"...\"" },
        doc: "Secret access key. Better given by the environment than by a flag, which others see.",
    },
    Key {
        name: "s3.session_token",
        kind: Kind::Secret,
        fallback: Fallback::Unset { means: "the keys are not temporary", example: "\"...\"" },
        doc: "Session token of temporary keys. They cannot be refreshed: for trials only.",
    },
    Key {
        name: "s3.profile",
        kind: Kind::Text { what: "the name of a profile" },
        fallback: Fallback::Unset {
            means: "AWS_PROFILE, else the profile default if it exists",
            example: "\"duolog\"",
        },
        doc: "Profile in ~/.aws/credentials and ~/.aws/config.",
    },
    Key {
        name: "s3.lease_duration_ms",
        kind: Kind::Number { min: 1, max: TIMING_MS_MAX },
        fallback: Fallback::Number(30_000),
        doc: "How long a write of the lease object carries the lease while the follower is away.",
    },
    Key {
        name: "s3.replication_delay_ms",
        kind: Kind::Number { min: 0, max: 60_000 },
        fallback: Fallback::Number(5),
        doc: "While the follower is away: how long blocks are gathered before they are uploaded.",
    },
    Key {
        name: "s3.retry_max_duration_secs",
        kind: Kind::Number { min: 0, max: 86_400 },
        fallback: Fallback::Unset { means: "for ever", example: "600" },
        doc: "How long a call that can be repeated is repeated while the store does not answer.",
    },
    Key {
        name: "watchdog.bound_ms",
        kind: Kind::Number { min: 1, max: 60_000 },
        fallback: Fallback::Number(20),
        doc: "A shard that has work and has not run for this long, in milliseconds, is woken.",
    },
    Key {
        name: "logging.level",
        kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        fallback: Fallback::Text("info"),
        doc: "Least important messages to log. Logs go to standard error.",
    },
    Key {
        name: "logging.format",
        kind: Kind::Choice(&["auto", "human", "json"]),
        fallback: Fallback::Text("auto"),
        doc: "Form of the log; auto is human on a terminal and json otherwise.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_flags_and_variables_are_unique_and_alike() {
        for (index, key) in KEYS.iter().enumerate() {
            assert_eq!(Key::index(key.name), Some(index));
            let same =
                KEYS.iter().filter(|other| other.flag() == key.flag() || other.env() == key.env());
            assert_eq!(same.count(), 1, "{}", key.name);
            assert!(key.doc.ends_with('.'), "{}: a doc line is a sentence", key.name);
        }
        let key = &KEYS[Key::index("shards.count").unwrap()];
        assert_eq!(
            (key.flag().as_str(), key.env().as_str()),
            ("shards-count", "DUOLOG_SHARDS_COUNT")
        );
    }

    #[test]
    fn bytes_are_written_with_the_largest_whole_unit() {
        assert_eq!(write_bytes(64 << 20), "64 MiB");
        assert_eq!(write_bytes(4096), "4 KiB");
        assert_eq!(write_bytes(2 << 30), "2 GiB");
        assert_eq!(write_bytes(1000), "1000");
        assert_eq!(write_bytes(0), "0");
    }
}
