//! One node of the development pair: a process of this same program.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY};

/// See the module.
#[derive(Debug)]
pub struct Node {
    /// `node-1` or `node-2`.
    pub name: String,
    /// Where clients connect.
    pub client: SocketAddr,
    /// Where HTTP clients connect.
    pub http: SocketAddr,
    /// Its log output.
    pub log: PathBuf,
    /// What it said last that it is.
    pub role: String,
    child: Child,
}

/// Where a node listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// For clients.
    pub client: SocketAddr,
    /// For the other node.
    pub peer: SocketAddr,
    /// For HTTP.
    pub http: SocketAddr,
}

/// What both nodes share.
#[derive(Debug)]
pub struct Common<'a> {
    /// Holds one directory per node.
    pub dir: &'a Path,
    /// The embedded S3.
    pub s3_url: &'a str,
    /// Its bucket.
    pub bucket: &'a str,
    /// Shards of the cluster.
    pub shards: u32,
}

impl Node {
    /// Starts `duolog serve`.
    pub fn start(common: &Common<'_>, name: &str, ports: Ports) -> io::Result<Self> {
        let Ports { client, peer, http } = ports;
        let log = common.dir.join(format!("{name}.log"));
        let data_dir = common.dir.join(name);
        std::fs::create_dir_all(&data_dir)?;
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--data-dir")
            .arg(&data_dir)
            .args(["--listen-client", &client.to_string(), "--listen-peer", &peer.to_string()])
            .args(["--listen-http", &http.to_string()])
            .args(["--shards-count", &common.shards.to_string()])
            .args(["--s3-endpoint", common.s3_url, "--s3-allow-http"])
            .args(["--s3-bucket", common.bucket, "--s3-access-key-id", DEFAULT_ACCESS_KEY_ID])
            .env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self { name: name.to_owned(), client, http, log, role: String::new(), child })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid() as i32) {
            // An error means that it has ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Ends it at once and collects it.
    pub fn kill(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
