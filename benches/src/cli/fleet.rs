//! `duolog bench worker` and `duolog bench run`.

use clap::{Args, Subcommand};

use super::BenchError;
use super::load::{APPEND_HELP, AppendArgs, LoadArgs, MIXED_HELP, MixedArgs, READ_HELP, ReadArgs};
use super::source::Source;
use crate::fleet::{Fleet, ServiceSettings, Token, serve};
use crate::generator::Settings;

pub(super) const WORKER_HELP: &str = "\
Examples:
  duolog bench worker                                      # for coordinators on this host
  duolog bench worker --once                               # ends when the first one has gone
  DUOLOG_BENCH_TOKEN=$(openssl rand -hex 16) duolog bench worker --listen 0.0.0.0:7500

A worker waits, without using a processor, for `duolog bench run --workers`, connects to the server
that it names, applies its share of the load, and sends its figures back. It serves one coordinator
at a time. Whoever may talk to it can send load to any address from here: listening on more than
loopback needs a token. The token itself is never sent, but what is said afterwards is not
encrypted.";

pub(super) const RUN_HELP: &str = "\
Examples:
  duolog bench run --workers 10.0.0.5:7500,10.0.0.6:7500 append --addr 10.0.0.1:7400 --rate 200000
  duolog bench run --workers h1:7500,h2:7500 append --addr db:7400 --connections 512 --threads 2
  duolog bench run --workers h1:7500,h2:7500 read --addr db:7400 --sweep

Takes every load with its flags. Connections, rate and streams are those of the whole run and are
shared among the workers; --threads is what each worker has. --addr is where the workers find the
server: 127.0.0.1 would be their own host. The merged figures are those that one process would have
measured. If a worker is lost the run fails and names it.";

/// `duolog bench worker`.
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Where to wait for coordinators
    #[arg(long, default_value = "127.0.0.1:7500", value_name = "HOST:PORT")]
    pub listen: String,
    /// End when the first coordinator has gone
    #[arg(long)]
    pub once: bool,
    /// What a coordinator has to know, at least 16 characters
    #[arg(long, env = "DUOLOG_BENCH_TOKEN", hide_env_values = true, value_name = "TEXT")]
    pub token: Option<String>,
}

/// `duolog bench run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The workers, each `duolog bench worker`
    #[arg(long, value_delimiter = ',', required = true, value_name = "HOST:PORT,…")]
    pub workers: Vec<String>,
    /// The token that the workers were given
    #[arg(long, env = "DUOLOG_BENCH_TOKEN", hide_env_values = true, value_name = "TEXT")]
    pub token: Option<String>,
    /// The load
    #[command(subcommand)]
    pub load: LoadCommand,
}

/// The loads that a fleet can apply.
#[derive(Subcommand, Clone, Debug)]
pub enum LoadCommand {
    /// Append events and measure throughput and latency
    #[command(after_help = APPEND_HELP)]
    Append(AppendArgs),
    /// Write streams, then read from them and measure throughput and latency
    #[command(after_help = READ_HELP)]
    Read(ReadArgs),
    /// Write streams, then read from them and append to them at the same time
    #[command(after_help = MIXED_HELP)]
    Mixed(MixedArgs),
}

impl WorkerArgs {
    pub(super) fn serve(&self) -> Result<(), BenchError> {
        let settings = ServiceSettings {
            listen: self.listen.clone(),
            once: self.once,
            token: token(self.token.as_deref())?,
        };
        // What a worker does is of interest to whoever started it, on a terminal or in a log.
        serve(&settings, |line| eprintln!("worker: {line}"))?;
        Ok(())
    }
}

impl LoadCommand {
    pub(super) const fn load_args(&self) -> &LoadArgs {
        match self {
            Self::Append(arguments) => &arguments.load,
            Self::Read(arguments) => &arguments.load,
            Self::Mixed(arguments) => &arguments.load,
        }
    }

    pub(super) fn settings(&self) -> Result<Settings, BenchError> {
        match self {
            Self::Append(arguments) => arguments.settings(),
            Self::Read(arguments) => arguments.settings(),
            Self::Mixed(arguments) => arguments.settings(),
        }
    }
}

impl RunArgs {
    pub(super) fn source(&self) -> Result<Source, BenchError> {
        let fleet = Fleet::join(&self.workers, token(self.token.as_deref())?)?;
        Ok(Source::Fleet(Box::new(fleet)))
    }
}

fn token(given: Option<&str>) -> Result<Option<Token>, BenchError> {
    Ok(given.map(Token::new).transpose()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::fleet::WORKERS_MAX;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    /// Workers, token, load and sweep arrive where they belong; a sweep has no rate, and options of
    /// a sweep nothing to do without it.
    #[test]
    fn a_run_takes_workers_and_a_load_with_its_flags() {
        let parse = |line: &str| Line::try_parse_from(line.split_whitespace());
        let line = "run --workers a:1,b:2 --token 0123456789abcdef \
                    append --connections 8 --in-flight 3 --sweep --slo-p99 5ms --sweep-step 1s";
        let run = parse(line).unwrap().run;
        assert_eq!(run.workers, ["a:1", "b:2"]);
        assert_eq!(run.token.as_deref(), Some("0123456789abcdef"));
        assert_eq!(run.load.settings().unwrap().connections, 8);
        let sweep = run.load.load_args().sweep.settings(3).unwrap();
        assert_eq!((sweep.limits.slo_p99_us, sweep.overload_in_flight), (Some(5000.0), 3));
        assert_eq!(sweep.limits.step, std::time::Duration::from_secs(1));
        assert!(
            parse("run --workers a:1 append")
                .unwrap()
                .run
                .load
                .load_args()
                .sweep
                .settings(1)
                .is_none()
        );
        for wrong in [
            "run append",
            "run --workers a:1",
            "run --workers a:1 append --sweep --rate 5",
            "run --workers a:1 append --sweep --closed",
            "run --workers a:1 append --slo-p99 5ms",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    /// The limits are told before anybody is connected to, and a token that is too short is a wrong
    /// command line.
    #[test]
    fn too_many_workers_and_short_tokens_are_usage_errors() {
        let load = Line::try_parse_from(["run", "--workers", "a:1", "append"]).unwrap().run.load;
        let many = vec!["127.0.0.1:1".to_owned(); WORKERS_MAX + 1];
        let run = RunArgs { workers: many, token: None, load };
        assert!(run.source().unwrap_err().is_usage());
        let twice = RunArgs { workers: vec!["127.0.0.1:1".to_owned(); 2], ..run };
        assert!(twice.source().unwrap_err().to_string().contains("each once"));
        let short = RunArgs { token: Some("short".to_owned()), ..twice };
        assert!(short.source().unwrap_err().is_usage());
    }
}
