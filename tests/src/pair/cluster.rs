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

/// What a pair stands on.
#[derive(Debug)]
pub struct Ground {
    /// The bucket, with its faults.
    pub s3: duolog_s3dev::Server,
    /// How nodes are started here.
    pub dress: Dress,
}

/// Makes of a node's number and its usual options those that fit the ground.
pub struct Dress(pub Box<dyn Fn(usize, ServerOptions) -> ServerOptions + Send + Sync>);

impl std::fmt::Debug for Dress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Dress")
    }
}

impl Default for Ground {
    /// The loopback.
    fn default() -> Self {
        let s3 = duolog_s3dev::Server::start(&duolog_s3dev::Settings::default());
        let s3 = s3.expect("the embedded S3 starts");
        let url = s3.url();
        Self { s3, dress: Dress(Box::new(move |_, options| options.flag("s3-endpoint", &url))) }
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
    dress: Dress,
    scratch: TempDir,
}

impl Pair {
    /// Two nodes that have never run, and an empty bucket.
    ///
    /// # Panics
    /// When the embedded S3 does not start.
    #[must_use]
    pub fn unfounded(setup: PairOptions) -> Self {
        Self::unfounded_on(setup, Ground::default())
    }

    /// The same on a given ground.
    #[must_use]
    pub fn unfounded_on(setup: PairOptions, ground: Ground) -> Self {
        let mut pair = Self {
            s3: ground.s3,
            shards: setup.shards,
            options: Vec::new(),
            members: [0, 1],
            running: Vec::new(),
            past_logs: Vec::new(),
            setup,
            dress: ground.dress,
            scratch: scratch(),
        };
        pair.add();
        pair.add();
        pair
    }

    /// A whole pair: node 0 has founded it and leads, node 1 has joined.
    #[must_use]
    pub fn found(setup: PairOptions) -> Self {
        Self::unfounded(setup).founded()
    }

    /// The same with a pair that has not run yet.
    #[must_use]
    pub fn founded(mut self) -> Self {
        let pair = &mut self;
        pair.start(0);
        pair.until_leads(0);
        pair.start(1);
        let leader = pair.healed();
        assert_eq!(leader, 0, "the founder leads\n{}", pair.story());
        pair.until("a heartbeat is acknowledged", |pair| {
            pair.status(0)?.has_seen("follower_reachable").then_some(())
        });
        self
    }

    pub(super) fn blank(&self, number: usize) -> ServerOptions {
        let dir = self.scratch.path().join(format!("node-{number}"));
        let (interval, lease, drift, s3_lease) = match self.setup.timing {
            Timing::Short => ("150", "900", "400", "3000"),
            Timing::Calm => ("500", "1500", "500", "6000"),
        };
        let options = ServerOptions::of_pair(dir)
            .shards(self.setup.shards)
            .tiny_segments()
            .env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY)
            .flag("s3-allow-http", "true")
            .flag("s3-bucket", "duolog")
            .flag("s3-access-key-id", DEFAULT_ACCESS_KEY_ID)
            .flag("listen-peer", &free_port().to_string())
            .flag("heartbeat-interval-ms", interval)
            .flag("heartbeat-lease-duration-ms", lease)
            .flag("max-clock-drift-ms", drift)
            .flag("s3-lease-duration-ms", s3_lease);
        (self.dress.0)(number, options)
    }
}
