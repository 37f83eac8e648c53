//! `duolog s3 probe`: the conformance suite against the real bucket.

use clap::builder::RangedI64ValueParser;
use clap::{Args, value_parser};
use duolog_s3client::Client;
use duolog_s3client::conformance::{self, Plan, Report, Verdict};

use crate::client::block_on;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::s3::{PATIENCE, client, failure};
use crate::settings::Settings;
use crate::settings::flags::SettingFlags;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog s3 probe --s3-bucket events --s3-region eu-central-1
  duolog s3 probe --s3-bucket events --s3-endpoint http://127.0.0.1:7403 --s3-allow-http --json
  duolog s3 probe --s3-bucket events --s3-endpoint https://a.example --through https://b.example

Writes, reads, lists and removes scratch objects below cluster/probe/ in the bucket. Exit code 0
if the store is safe for leases, 1 if it is unsafe, 2 to 4 if it could not be used at all.";

/// `duolog s3 probe`
#[derive(Args, Debug)]
pub struct ProbeArgs {
    /// Another endpoint of the same store; writers of a race are spread over all. May be repeated.
    #[arg(long, value_name = "URL")]
    pub through: Vec<String>,
    /// Writers in each race.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count(2))]
    pub writers: u16,
    /// Races of each kind.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1))]
    pub rounds: u16,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// At least `min`, and no more than a store should be asked for by a person.
fn count(min: i64) -> RangedI64ValueParser<u16> {
    value_parser!(u16).range(min..=256)
}

/// Runs the suite and prints what it found.
pub fn run(
    arguments: &ProbeArgs,
    settings: &Settings,
    mut output: Output,
) -> Result<Exit, Failure> {
    let mut s3 = settings.s3.clone();
    s3.retry_max_duration = s3.retry_max_duration.or(Some(PATIENCE));
    let mut clients: Vec<Client> = vec![client(&s3, None)?];
    for endpoint in &arguments.through {
        clients.push(client(&s3, Some(endpoint))?);
    }
    let plan = Plan {
        subfolder: s3.subfolder.clone(),
        writers: usize::from(arguments.writers),
        rounds: usize::from(arguments.rounds),
        ..Plan::default()
    };
    let report = block_on(async {
        conformance::run(&clients, &plan).await.map_err(|error| failure(&error))
    })?;
    print(&report, arguments.json, &mut output)?;
    output.flush()?;
    Ok(match report.verdict {
        Verdict::Safe => Exit::Ok,
        Verdict::Unsafe => Exit::CheckFailed,
    })
}

fn print(report: &Report, json: bool, output: &mut Output) -> Result<(), Failure> {
    if json {
        let document = serde_json::to_value(report).map_err(|error| {
            Failure::new(Exit::Internal, format!("the report makes no JSON: {error}"))
        })?;
        return output.json(&document);
    }
    let (endpoints, bucket) = (report.endpoints.join(", "), &report.bucket);
    output.line(&format!("bucket {bucket} at {endpoints}, region {}", report.region))?;
    output.text(&report.table())
}
