//! PostgreSQL as an event store: a table of streams with their versions, a table of events, and a
//! function that checks the version, moves it on and inserts the event in one transaction and one
//! round trip. That is the shape that event stores on PostgreSQL have.

use std::path::Path;

use rustix::process::Signal;

use super::{Running, Site, SystemError, write_file};
use crate::process::Launch;

/// Who runs it: it refuses to be root.
const USER: &str = "postgres";
const STANDBY: &str = "standby";

/// What is set; everything else is as it comes.
pub const SETTINGS: &str = "fsync on, synchronous_commit on, wal_sync_method default (fdatasync), \
    full_page_writes on; shared_buffers 512MB, max_wal_size 4GB, max_connections 600; one \
    prepared statement, one round trip and one transaction per append";
const PARAMETERS: [&str; 9] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=600",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "logging_collector=off",
];

const SCHEMA: &str = "
create table streams (
  id text primary key,
  version bigint not null,
  changed_at timestamptz not null default now()
);
create table events (
  position bigint generated always as identity primary key,
  id uuid not null,
  stream_id text not null references streams (id),
  version bigint not null,
  type text not null,
  data bytea not null,
  created_at timestamptz not null default now(),
  unique (stream_id, version)
);
create function append_event(
  stream text, expected bigint, event_id uuid, event_type text, event_data bytea
) returns bigint language plpgsql as $$
begin
  if expected = 0 then
    insert into streams (id, version) values (stream, 1) on conflict do nothing;
  else
    update streams set version = expected + 1, changed_at = now()
      where id = stream and version = expected;
  end if;
  if not found then
    raise exception 'stream % is not at version %', stream, expected using errcode = '40001';
  end if;
  insert into events (id, stream_id, version, type, data)
    values (event_id, stream, expected + 1, event_type, event_data);
  return expected + 1;
end $$;
";

/// One server.
pub fn start(site: &Site) -> Result<Running, SystemError> {
    make_primary(site)?;
    site.launch(&[server(site, "primary", 0)])
}

/// A primary whose commits wait until the standby has flushed them too.
pub fn start_pair(site: &Site) -> Result<Running, SystemError> {
    make_primary(site)?;
    if !Path::new(&site.path(STANDBY)).exists() {
        make_standby(site)?;
    }
    let names = format!("synchronous_standby_names={STANDBY}");
    let source = primary_address(site);
    let primary = server(site, "primary", 0).with(["-c", &names]);
    let standby = server(site, STANDBY, 1).with(["-c", &source]);
    // The standby is started last and so ends first: nothing waits for it any more.
    let mut running = site.launch(&[primary, standby])?;
    let question = "select sync_state from pg_stat_replication";
    running.wait("the standby is synchronous", || {
        let said = psql(site, &["-Atc", question]).run(&site.dir);
        let said = said.map_err(|error| error.to_string())?;
        if said.trim() == "sync" { Ok(()) } else { Err(said) }
    })?;
    Ok(running)
}

fn program(site: &Site, name: &str) -> String {
    site.programs.postgres_folder.join(name).to_string_lossy().into_owned()
}

fn server(site: &Site, name: &'static str, index: u16) -> Launch {
    let (program, data) = (program(site, "postgres"), site.path(name));
    let port = site.addr(index).port().to_string();
    let parameters = PARAMETERS.iter().flat_map(|parameter| ["-c", *parameter]);
    let launch = Launch::new(name, site.cpu, [&*program, "-D", &data, "-p", &port])
        .with(parameters)
        .run_by(USER);
    // Closes sessions and writes a checkpoint.
    Launch { end_with: Signal::INT, ..launch }
}

fn primary_address(site: &Site) -> String {
    let port = site.addr(0).port();
    format!("primary_conninfo=host=127.0.0.1 port={port} user={USER} application_name={STANDBY}")
}

fn psql(site: &Site, words: &[&str]) -> Launch {
    let (program, port) = (program(site, "psql"), site.port.to_string());
    let connection = ["-h", "127.0.0.1", "-p", &port, "-v", "ON_ERROR_STOP=1", "-q", "-X"];
    Launch::new("psql", site.cpu, [&*program])
        .with(connection)
        .with(words.iter().copied())
        .run_by(USER)
}

/// The data directory with the schema, if it is not there yet.
fn make_primary(site: &Site) -> Result<(), SystemError> {
    let data = site.path("primary");
    if Path::new(&data).exists() {
        return Ok(());
    }
    let (owner, schema) = (format!("{USER}:{USER}"), site.path("schema.sql"));
    write_file(schema.as_ref(), SCHEMA)?;
    let dir = site.dir.to_string_lossy();
    Launch::new("chown", site.cpu, ["chown", &owner, &dir]).run(&site.dir)?;
    let initdb = program(site, "initdb");
    let words = [&*initdb, "-D", &data, "-U", USER, "-A", "trust", "-E", "UTF8"];
    let locale = ["--locale", "C.UTF-8"];
    Launch::new("initdb", site.cpu, words).with(locale).run_by(USER).run(&site.dir)?;
    let mut running = site.launch(&[server(site, "primary", 0)])?;
    running.wait("the schema is there", || {
        let made = psql(site, &["-1", "-f", &schema]).run(&site.dir);
        made.map(drop).map_err(|error| error.to_string())
    })?;
    running.end()
}

fn make_standby(site: &Site) -> Result<(), SystemError> {
    let mut running = site.launch(&[server(site, "primary", 0)])?;
    running.wait("the primary takes sessions", || {
        let said = psql(site, &["-Atc", "select 1"]).run(&site.dir);
        said.map(drop).map_err(|error| error.to_string())
    })?;
    let (backup, data) = (program(site, "pg_basebackup"), site.path(STANDBY));
    let port = site.port.to_string();
    let words = [&*backup, "-h", "127.0.0.1", "-p", &port, "-U", USER, "-D", &data];
    let launch = Launch::new("pg_basebackup", site.cpu, words).with(["-c", "fast", "-R"]);
    launch.run_by(USER).run(&site.dir)?;
    running.end()
}
