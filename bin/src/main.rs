//! The `duolog` program: command line, settings, boot probes, and the commands behind them.

mod bench;
mod checkup;
mod cli;
mod client;
mod completions;
mod datadir;
mod dev;
mod doctor;
mod event_line;
mod exit;
mod failover;
mod journal;
mod logging;
mod man;
mod offline;
mod output;
mod probe;
mod s3;
mod serve;
mod settings;
#[cfg(test)]
mod shown;
mod timestamp;
mod top;
mod uring;
mod version;

use std::process::ExitCode;

use clap::Parser;

use crate::checkup::Probe;
use crate::cli::{Cli, Command, ConfigCommand, DoctorArgs, S3Command};
use crate::client::node::NodeCommand;
use crate::exit::{Exit, Failure};
use crate::failover::FailoverCommand;
use crate::logging::Log;
use crate::output::Output;
use crate::s3::lease::LeaseCommand;
use crate::serve::Reload;
use crate::settings::flags::SettingFlags;
use crate::settings::{Settings, Surroundings, show};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.command.json();
    match run(cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report(&failure, json);
            failure.exit.into()
        }
    }
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Serve(arguments) => {
            let settings = load(&arguments.settings)?;
            let log = Log::start(&settings.logging.level, &settings.logging.format);
            serve::run(&settings, Reload::new(arguments.settings, &settings, log))
        }
        Command::Config(ConfigCommand::Show { json, settings }) => show(&load(&settings)?, json),
        Command::Config(ConfigCommand::Default) => {
            let mut output = Output::new();
            output.text(&show::default_file())?;
            output.flush()?;
            Ok(Exit::Ok)
        }
        Command::Dev(arguments) => dev::run(&arguments, Output::new()),
        Command::Doctor(arguments) => doctor(&arguments),
        Command::Append(arguments) => client::append::run(&arguments, Output::new()),
        Command::Read(arguments) => client::read::run(&arguments, Output::new()),
        Command::Subscribe(arguments) => client::subscribe::run(&arguments, Output::new()),
        Command::Import(arguments) => client::import::run(&arguments, Output::new()),
        Command::Export(arguments) => client::export::run(&arguments, Output::new()),
        Command::Status(arguments) => client::status::run(&arguments, Output::new()),
        Command::Top(arguments) => top::run(&arguments, Output::new()),
        Command::Handoff(arguments) => client::handoff::run(&arguments, Output::new()),
        Command::Failover(FailoverCommand::Explain(arguments)) => {
            failover::run(&arguments, &load(&arguments.settings)?, Output::new())
        }
        Command::Node(NodeCommand::Replace(arguments)) => {
            client::node::run(&arguments, Output::new())
        }
        Command::Verify(arguments) => offline::verify::run(&arguments, Output::new()),
        Command::Inspect(arguments) => offline::inspect::run(&arguments, Output::new()),
        Command::Lease(LeaseCommand::Show(arguments)) => {
            s3::lease::run(&arguments, &load(&arguments.settings)?, Output::new())
        }
        Command::S3(S3Command::Probe(arguments)) => {
            s3::probe::run(&arguments, &load(&arguments.settings)?, Output::new())
        }
        Command::S3Dev(arguments) => s3::dev::run(&arguments, Output::new()),
        Command::Bench(arguments) => bench::run(&arguments, Output::new()),
        Command::Completions(arguments) => completions::run(&arguments, Output::new()),
        Command::Man(arguments) => man::run(&arguments),
    }
}

fn load(flags: &SettingFlags) -> Result<Settings, Failure> {
    Settings::load(flags, &Surroundings::of_this_process())
}

fn show(settings: &Settings, json: bool) -> Result<Exit, Failure> {
    let mut output = Output::new();
    if json {
        output.json(&show::json(settings))?;
    } else {
        output.text(&show::table(settings))?;
    }
    output.flush()?;
    Ok(Exit::Ok)
}

fn doctor(arguments: &DoctorArgs) -> Result<Exit, Failure> {
    let settings = load(&arguments.settings)?;
    let visit = !arguments.addr.is_empty();
    let mut findings = Vec::new();
    if !visit || settings.data_dir.is_some() {
        findings = doctor::examine(&settings);
    }
    if visit {
        let probe = if arguments.probe { Probe::Fresh } else { Probe::Stored };
        findings.extend(client::block_on(async {
            Ok(checkup::examine(&arguments.addr, &settings, probe).await)
        })?);
    }
    let mut output = Output::new();
    if arguments.json {
        output.json(&doctor::json(&findings))?;
    } else {
        output.text(&doctor::table(&findings))?;
    }
    output.flush()?;
    Ok(if doctor::failed(&findings) { Exit::CheckFailed } else { Exit::Ok })
}

/// Says on standard error why the command failed: one line per problem, or one JSON document.
fn report(failure: &Failure, json: bool) {
    if failure.text.is_empty() {
        return;
    }
    if json {
        let exit = failure.exit;
        let error = serde_json::json!({
            "error": {
                "exit": exit.code(),
                "name": exit.name(),
                "text": failure.text,
                "details": failure.details,
            },
        });
        eprintln!("{error}");
    } else {
        for line in failure.text.lines() {
            eprintln!("duolog: {line}");
        }
    }
}
