//! A pair with its bucket.

use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY};
use tempfile::TempDir;

use crate::process::{Server, ServerOptions, free_port, scratch};

/// Timings of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// A lease of 900 ms, 3 s by S3: failovers are quick, and happen for less.
    Short,
    /// The program's defaults, but 6 s instead of 30 s by S3: no failover by a busy machine.
    Calm,
}

/// How a pair is set up.
#[derive(Clone, Copy, Debug)]
pub struct PairOptions {
    /// Shards.
    pub shards: u32,
    /// Timings.
    pub timing: Timing,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self { shards: 1, timing: Timing::Short }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pair {
    /// The bucket, with its faults.
    pub s3: duolog_s3dev::Server,
    /// Shards.
    pub shards: u32,
    /// How each node is started.
    pub options: Vec<ServerOptions>,
    /// The numbers of the two nodes that are, or are to be, the members.
    pub members: [usize; 2],
    pub(super) running: Vec<Option<Server>>,
    pub(super) past_logs: Vec<Vec<String>>,
    setup: PairOptions,
    scratch: TempDir,
}

impl Pair {
    /// Two nodes that have never run, and an empty bucket.
    ///
    /// # Panics
    /// When the embedded S3 does not start.
    #[must_use]
    pub fn unfounded(setup: PairOptions) -> Self {
        let s3 = duolog_s3dev::Server::start(&duolog_s3dev::Settings::default());
        let mut pair = Self {
            s3: s3.expect("the embedded S3 starts"),
            shards: setup.shards,
            options: Vec::new(),
            members: [0, 1],
            running: Vec::new(),
            past_logs: Vec::new(),
            setup,
            scratch: scratch(),
        };
        pair.add();
        pair.add();
        pair
    }

    /// A whole pair: node 0 has founded it and leads, node 1 has joined.
    #[must_use]
    pub fn found(setup: PairOptions) -> Self {
        let mut pair = Self::unfounded(setup);
        pair.start(0);
        pair.until_leads(0);
        pair.start(1);
        let leader = pair.healed();
        assert_eq!(leader, 0, "the founder leads\n{}", pair.story());
        pair.until("a heartbeat is acknowledged", |pair| {
            pair.status(0)?.has_seen("follower_reachable").then_some(())
        });
        pair
    }

    pub(super) fn blank(&self, number: usize) -> ServerOptions {
        let dir = self.scratch.path().join(format!("node-{number}"));
        let (interval, lease, drift, s3_lease) = match self.setup.timing {
            Timing::Short => ("150", "900", "400", "3000"),
            Timing::Calm => ("500", "1500", "500", "6000"),
        };
        ServerOptions::of_pair(dir)
            .shards(self.setup.shards)
            .tiny_segments()
            .env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY)
            .flag("s3-endpoint", &self.s3.url())
            .flag("s3-allow-http", "true")
            .flag("s3-bucket", "duolog")
            .flag("s3-access-key-id", DEFAULT_ACCESS_KEY_ID)
            .flag("listen-peer", &free_port().to_string())
            .flag("heartbeat-interval-ms", interval)
            .flag("heartbeat-lease-duration-ms", lease)
            .flag("max-clock-drift-ms", drift)
            .flag("s3-lease-duration-ms", s3_lease)
    }
}
