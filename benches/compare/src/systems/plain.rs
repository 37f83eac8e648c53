//! Servers that are one process with options.

use super::{Running, Site, SystemError, make_folder, write_file};
use crate::dialect::basin_file;
use crate::process::Launch;

/// Redis with its append-only file; `sync` is its appendfsync.
pub fn redis(site: &Site, sync: &str) -> Result<Running, SystemError> {
    let (program, port) = (site.programs.redis.to_string_lossy(), site.port.to_string());
    let data = site.path("data");
    make_folder(data.as_ref())?;
    let launch = Launch::new("redis", site.cpu, [&program, "--port", &port, "--bind", "127.0.0.1"])
        .with(["--dir", &data, "--save", "", "--appendonly", "yes", "--appendfsync", sync])
        .with(["--auto-aof-rewrite-percentage", "0"]);
    site.launch(&[launch])
}

/// etcd as the only member of its cluster.
pub fn etcd(site: &Site) -> Result<Running, SystemError> {
    let (program, data) = (site.programs.etcd.to_string_lossy(), site.path("data"));
    let client = format!("http://{}", site.addr(0));
    let peer = format!("http://{}", site.addr(1));
    let cluster = format!("default={peer}");
    let launch = Launch::new("etcd", site.cpu, [&program, "--data-dir", &data])
        .with(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .with(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .with(["--initial-cluster", &cluster, "--quota-backend-bytes", "8589934592"])
        .with(["--logger", "zap", "--log-level", "warn"]);
    site.launch(&[launch])
}

/// UmaDB.
pub fn umadb(site: &Site) -> Result<Running, SystemError> {
    let (program, data) = (site.programs.umadb.to_string_lossy(), site.path("data"));
    make_folder(data.as_ref())?;
    let listen = site.addr(0).to_string();
    let words = [&*program, "--listen", &listen, "--db-path", &data];
    site.launch(&[Launch::new("umadb", site.cpu, words)])
}

/// s2-lite on a local directory. It listens on all addresses; there is no option for that.
pub fn s2_lite(site: &Site) -> Result<Running, SystemError> {
    let (program, port) = (site.programs.s2_lite.to_string_lossy(), site.port.to_string());
    let (data, basins) = (site.path("data"), site.path("basins.json"));
    write_file(basins.as_ref(), &basin_file())?;
    let mut launch = Launch::new("s2-lite", site.cpu, [&program, "--port", &port]).with([
        "--local-root",
        &data,
        "--init-file",
        &basins,
        "--no-dashboard",
    ]);
    launch.variables.push(("RUST_LOG", "warn".to_owned()));
    site.launch(&[launch])
}

/// The version in the record that `cargo install` keeps beside the program's folder.
pub fn s2_lite_version(site: &Site) -> Result<String, SystemError> {
    let program = &site.programs.s2_lite;
    if !program.exists() {
        return Err(SystemError::Missing(program.display().to_string()));
    }
    let record = program.ancestors().nth(2).map(|folder| folder.join(".crates.toml"));
    let text = record.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let version = text.lines().find_map(|line| line.strip_prefix("\"s2-lite "));
    let version = version.and_then(|rest| rest.split_whitespace().next());
    Ok(format!("s2-lite {}", version.unwrap_or("of unknown version")))
}
