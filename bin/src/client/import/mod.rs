//! `duolog import`: NDJSON into streams, once, however often it is run.

mod key;
mod mapping;
mod pipeline;
pub mod progress;
mod source;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::{ArgGroup, Args, value_parser};
use duolog_net::client::{Client, Error};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::client::{ServerArgs, block_on, failure};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use key::KeyParts;
use mapping::{Mapping, Source};
use pipeline::{Done, Frontier, Job, Pipeline};
use progress::{LINES_PER_PROGRESS, Progress};
use source::{Input, Line};

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog import flights.ndjson --stream-field origin --stream-prefix flights- --type Flight
  duolog import quakes.ndjson --stream-field properties.net --type-field properties.type
  zcat log.ndjson.gz | duolog import - --name log-2026-07 --stream log --type Line

Each line becomes one event whose data is the line. Lines of one stream keep their order. Running
the same import again adds nothing: every line has an idempotency key made from the import's name,
its number and its text, and a stream \"$duolog.import.NAME#…\" remembers how far the import has
come. So an import that was interrupted is simply run again, and a file that has grown adds only
its new lines. The name is the file's name unless --name is given; a file whose beginning has
changed is refused under the same name. Other streams or types make another import. Lines of one
stream are sent one by one, so a file for a single stream takes a durable write per line.";

/// `duolog import`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("into").required(true).args(["stream", "stream_field"])))]
#[command(group(ArgGroup::new("kind").required(true).args(["type", "type_field"])))]
pub struct ImportArgs {
    /// NDJSON file; "-" is standard input.
    pub file: PathBuf,
    /// The stream for all lines.
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// The field that names the stream; dots lead into objects.
    #[arg(long, value_name = "FIELD")]
    pub stream_field: Option<String>,
    /// Put before the stream's name; "{flights}-" would keep all streams in one shard.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub stream_prefix: String,
    /// The type for all lines.
    #[arg(long, value_name = "TYPE")]
    pub r#type: Option<String>,
    /// The field that names the type; dots lead into objects.
    #[arg(long, value_name = "FIELD")]
    pub type_field: Option<String>,
    /// The import's name; must be given for standard input.
    #[arg(long, value_name = "NAME", required_if_eq("file", "-"))]
    pub name: Option<String>,
    /// Lines in flight at one time.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one())]
    pub in_flight: u16,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

fn at_least_one() -> impl clap::builder::TypedValueParser<Value = u16> {
    value_parser!(u16).range(1..)
}

impl ImportArgs {
    fn name(&self) -> String {
        let file = || self.file.file_name().map(|name| name.to_string_lossy().into_owned());
        self.name.clone().or_else(file).unwrap_or_default()
    }

    /// Names the import together with what its lines become: the same file read into other streams
    /// is another import.
    fn identity(&self) -> String {
        let Mapping { stream_prefix, stream, kind } = self.mapping();
        let text = |source: &Source| match source {
            Source::Fixed(fixed) => format!("={fixed}"),
            Source::Field(field) => format!(".{field}"),
        };
        let options = format!("{stream_prefix}\0{}\0{}", text(&stream), text(&kind));
        format!("{}#{:08x}", self.name(), crc32c::crc32c(options.as_bytes()))
    }

    fn mapping(&self) -> Mapping {
        let source = |fixed: &Option<String>, field: &Option<String>| match (fixed, field) {
            (Some(fixed), _) => Source::Fixed(fixed.clone()),
            (None, field) => Source::Field(field.clone().unwrap_or_default()),
        };
        Mapping {
            stream_prefix: self.stream_prefix.clone(),
            stream: source(&self.stream, &self.stream_field),
            kind: source(&self.r#type, &self.type_field),
        }
    }
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    /// Lines added now.
    appended: u64,
    /// Lines that were sent and had been there.
    replayed: u64,
    /// Lines that were known to be done and not sent.
    skipped: u64,
    /// Empty lines.
    blank: u64,
}

/// Imports the file and prints a summary.
pub fn run(arguments: &ImportArgs, mut output: Output) -> Result<Exit, Failure> {
    let (summary, outcome) = block_on(async {
        let client = arguments.server.connect().await?;
        let progress = Progress::load(&client, &arguments.identity()).await?;
        let input = source::open(&arguments.file, progress.done)
            .map_err(|error| Failure::new(Exit::LocalIo, error))?;
        let mut import = Import::new(arguments, client, progress, &input);
        let outcome = import.run(input).await;
        import.bar.finish_and_clear();
        Ok((import.summary, outcome))
    })?;
    let Summary { appended, replayed, skipped, blank } = summary;
    if arguments.json {
        output.json(&json!({
            "name": arguments.name(),
            "appended": appended,
            "replayed": replayed,
            "skipped": skipped,
            "blank": blank,
            "complete": outcome.is_ok(),
        }))?;
    } else {
        let there = replayed + skipped;
        let state = if outcome.is_ok() { "" } else { "interrupted: " };
        output.line(&format!("{state}{appended} lines added, {there} were there before"))?;
    }
    output.flush()?;
    outcome.map(|()| Exit::Ok)
}

struct Import {
    name: String,
    mapping: Mapping,
    pipeline: Pipeline,
    frontier: Frontier,
    progress: Progress,
    summary: Summary,
    bar: ProgressBar,
}

impl Import {
    fn new(arguments: &ImportArgs, client: Client, progress: Progress, input: &Input) -> Self {
        Self {
            name: arguments.identity(),
            mapping: arguments.mapping(),
            pipeline: Pipeline::new(client, usize::from(arguments.in_flight)),
            frontier: Frontier::new(progress.done),
            summary: Summary { skipped: progress.done.lines, ..Summary::default() },
            progress,
            bar: progress_bar(input.size_bytes, arguments.json),
        }
    }

    /// Sends all lines. Whatever ends it early, everything that was sent is waited for, and what
    /// is done is recorded if the server can be reached.
    async fn run(&mut self, mut input: Input) -> Result<(), Failure> {
        let mut outcome = self.send_all(&mut input).await;
        if outcome.is_err() {
            self.pipeline.stop();
        }
        while let Some(done) = self.pipeline.next().await {
            let settled = self.settle(done);
            outcome = outcome.and(settled);
            if outcome.is_err() {
                self.pipeline.stop();
            }
        }
        let reachable =
            |failed: &Failure| !matches!(failed.exit, Exit::Unreachable | Exit::Unknown);
        if outcome.as_ref().err().is_none_or(reachable) {
            let saved = self.progress.save(self.frontier.done()).await;
            return outcome.and(saved);
        }
        outcome
    }

    async fn send_all(&mut self, input: &mut Input) -> Result<(), Failure> {
        loop {
            let batch = tokio::select! {
                batch = input.lines.recv() => batch,
                Some(done) = self.pipeline.next() => {
                    self.settle(done)?;
                    continue;
                }
            };
            let Some(batch) = batch else { return Ok(()) };
            let batch = batch.map_err(|error| Failure::new(Exit::LocalIo, error))?;
            for line in batch {
                while !self.pipeline.has_room() {
                    let Some(done) = self.pipeline.next().await else { break };
                    self.settle(done)?;
                }
                self.push(line)?;
            }
            self.bar.set_position(input.read_bytes.load(Ordering::Relaxed));
            if self.frontier.done().lines >= self.progress.done.lines + LINES_PER_PROGRESS {
                self.progress.save(self.frontier.done()).await?;
            }
        }
    }

    fn push(&mut self, line: Line) -> Result<(), Failure> {
        let Line { prefix, text: data } = line;
        if data.is_empty() {
            self.frontier.open(prefix);
            self.frontier.close(prefix.lines);
            self.summary.blank += 1;
            return Ok(());
        }
        let target = self.mapping.target(&data).map_err(|reason| {
            Failure::new(Exit::LocalIo, format!("line {} {reason}", prefix.lines))
        })?;
        let parts = KeyParts {
            import: &self.name,
            line: prefix.lines,
            stream: &target.stream,
            kind: &target.kind,
            data: &data,
        };
        let key = parts.key();
        self.frontier.open(prefix);
        self.pipeline.push(Job { line: prefix.lines, target, key, data });
        Ok(())
    }

    fn settle(&mut self, done: Done) -> Result<(), Failure> {
        let receipt = done.outcome.map_err(|error| {
            let failed = failure(&error);
            let text = match &error {
                // The library's advice is for programs that have the key.
                Error::Unknown { text, .. } => format!(
                    "it is not known whether it was added ({text}): run the same import again, \
                     it adds nothing twice"
                ),
                _ => failed.text.clone(),
            };
            Failure { text: format!("line {}: {text}", done.line), ..failed }
        })?;
        self.frontier.close(done.line);
        if receipt.replayed {
            self.summary.replayed += 1;
        } else {
            self.summary.appended += 1;
        }
        Ok(())
    }
}

fn progress_bar(size_bytes: Option<u64>, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let target = ProgressDrawTarget::stderr();
    let (bar, form) = match size_bytes {
        Some(size) => {
            let form = "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}";
            (ProgressBar::with_draw_target(Some(size), target), form)
        }
        None => (ProgressBar::with_draw_target(None, target), "{spinner} {bytes}  {bytes_per_sec}"),
    };
    bar.set_style(
        ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        import: ImportArgs,
    }

    fn parse(arguments: &[&str]) -> Result<ImportArgs, clap::Error> {
        Test::try_parse_from([&["import"], arguments].concat()).map(|test| test.import)
    }

    #[test]
    fn stream_and_type_each_come_from_one_place() {
        assert!(parse(&["f", "--stream", "s", "--type", "t"]).is_ok());
        assert!(parse(&["f", "--stream-field", "s", "--type-field", "t"]).is_ok());
        assert!(parse(&["f", "--stream", "s"]).is_err());
        assert!(parse(&["f", "--type", "t"]).is_err());
        assert!(parse(&["f", "--stream", "s", "--stream-field", "f", "--type", "t"]).is_err());
        assert!(parse(&["f", "--stream", "s", "--type", "t", "--in-flight", "0"]).is_err());
    }

    #[test]
    fn an_import_is_named_after_its_file() {
        let named = |arguments: &[&str]| {
            let fixed = ["--stream", "s", "--type", "t"];
            parse(&[arguments, &fixed].concat()).map(|parsed| parsed.name())
        };
        assert_eq!(named(&["some/dir/flights.ndjson"]).unwrap(), "flights.ndjson");
        assert_eq!(named(&["flights.ndjson", "--name", "x"]).unwrap(), "x");
        assert!(named(&["-"]).is_err());
        assert_eq!(named(&["-", "--name", "x"]).unwrap(), "x");
    }
}
