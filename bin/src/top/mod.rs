//! `duolog top`: the pair at a terminal, again and again.
//!
//! A thread asks the nodes; this one draws and listens to keys, so that a node that is slow to
//! answer never makes a key wait.

mod draw;
mod model;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::client::{ServerArgs, block_on, status};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::serve::clock::Clock;
use model::{Look, Model};

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog top --addr 10.0.0.1:7400,10.0.0.2:7400
  duolog top --once --addr 10.0.0.1:7400,10.0.0.2:7400
  duolog top --json | jq '.nodes[].events_per_s'

Keys: q quits, p pauses, tab and the arrows select the node whose shards are shown. Rates lie
between two looks; --once and --json take two looks, one interval apart, and end. Their exit code:
0 if all addresses answer and one takes appends, 1 if not, 3 if none answers.";

/// How long one answer is waited for, at least: a frozen node must not look like a slow one.
const PATIENCE_MIN_MS: u64 = 500;
/// How long keys are waited for before new looks are drawn.
const KEYS: Duration = Duration::from_millis(50);
/// Width of a frame that goes to no terminal, columns.
const WIDTH: u16 = 120;

/// `duolog top`
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Between two looks, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = RangedU64ValueParser::<u64>::new().range(50..=60_000))]
    pub interval_ms: u64,
    /// Print one frame as text and end.
    #[arg(long)]
    pub once: bool,
    /// Print one look as JSON and end.
    #[arg(long)]
    pub json: bool,
    /// The servers.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Shows the nodes until somebody quits.
pub fn run(arguments: &TopArgs, output: Output) -> Result<Exit, Failure> {
    let model = Model::new(arguments.server.addresses(), arguments.interval_ms);
    if arguments.once || arguments.json {
        return once(arguments, model, output);
    }
    drop(output);
    if !std::io::stdout().is_terminal() {
        let text = "standard output is no terminal: use --once or --json";
        return Err(Failure::new(Exit::Usage, text));
    }
    let (looks, seen) = channel();
    let (addresses, interval_ms) = (model.addresses.clone(), model.interval_ms);
    let thread = std::thread::Builder::new().name("looks".to_owned());
    let spawned = thread.spawn(move || look_for_ever(&addresses, interval_ms, &looks));
    spawned.map_err(|error| failure(&error))?;
    // Puts the terminal back when the program panics, too.
    let mut screen = ratatui::try_init().map_err(|error| failure(&error))?;
    let shown = show(&mut screen, model, &seen);
    ratatui::restore();
    shown.map_err(|error| failure(&error))?;
    Ok(Exit::Ok)
}

fn failure(error: &std::io::Error) -> Failure {
    Failure::new(Exit::LocalIo, format!("the terminal cannot be used: {error}"))
}

fn show(
    screen: &mut ratatui::DefaultTerminal,
    mut model: Model,
    seen: &Receiver<Look>,
) -> std::io::Result<()> {
    loop {
        loop {
            match seen.try_recv() {
                Ok(look) => model.take(look),
                Err(TryRecvError::Empty) => break,
                // A signal asked for the end.
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        screen.draw(|frame| draw::draw(frame, &model))?;
        if !event::poll(KEYS)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        let ends = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            _ if ends => return Ok(()),
            KeyCode::Char('p') => model.paused = !model.paused,
            KeyCode::Tab | KeyCode::Down | KeyCode::Right => model.select(1),
            KeyCode::BackTab | KeyCode::Up | KeyCode::Left => {
                model.select(model.addresses.len().saturating_sub(1));
            }
            _ => {}
        }
    }
}

/// One frame or document after two looks.
fn once(arguments: &TopArgs, mut model: Model, mut output: Output) -> Result<Exit, Failure> {
    let interval = Duration::from_millis(arguments.interval_ms);
    let (addresses, interval_ms) = (model.addresses.clone(), arguments.interval_ms);
    block_on(async {
        model.take(look(&addresses, interval_ms).await);
        tokio::time::sleep(interval).await;
        model.take(look(&addresses, interval_ms).await);
        Ok(())
    })?;
    if arguments.json {
        output.json(&model.json())?;
    } else {
        let width = terminal::size().map_or(WIDTH, |(width, _)| width.max(20));
        output.text(&text(&model, width, draw::height(&model)))?;
    }
    output.flush()?;
    let answers = (0..addresses.len()).filter(|node| model.status(*node).is_some()).count();
    Ok(match (answers, model.leader()) {
        (0, _) => Exit::Unreachable,
        (answers, Some(_)) if answers == addresses.len() => Exit::Ok,
        _ => Exit::CheckFailed,
    })
}

/// A frame as text, without what is behind the last sign of each line.
fn text(model: &Model, width: u16, height: u16) -> String {
    let Ok(mut screen) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = screen.draw(|frame| draw::draw(frame, model));
    let buffer = screen.backend().buffer();
    let mut text = String::new();
    for row in 0..height {
        let line: String = (0..width).map(|column| buffer[(column, row)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn look_for_ever(addresses: &[String], interval_ms: u64, looks: &Sender<Look>) {
    let interval = Duration::from_millis(interval_ms);
    let watched = block_on(async {
        let mut terminated = signal(SignalKind::terminate()).map_err(|error| failure(&error))?;
        let mut hung_up = signal(SignalKind::hangup()).map_err(|error| failure(&error))?;
        let looking = async {
            while looks.send(look(addresses, interval_ms).await).is_ok() {
                tokio::time::sleep(interval).await;
            }
        };
        tokio::select! {
            () = looking => {}
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
        Ok(())
    });
    // Without looks there is nothing to show, and the screen ends.
    drop(watched);
}

/// Asks every node for itself, all at one time.
async fn look(addresses: &[String], interval_ms: u64) -> Look {
    let patience = Duration::from_millis(interval_ms.max(PATIENCE_MIN_MS));
    let mut asked = JoinSet::new();
    for (index, address) in addresses.iter().cloned().enumerate() {
        asked.spawn(async move { (index, status::ask(&address, patience).await) });
    }
    let mut said = asked.join_all().await;
    said.sort_by_key(|(index, _)| *index);
    let now = Clock.now();
    let nodes = said.into_iter().map(|(_, said)| said).collect();
    Look { at: now.mono, wall_ms: now.wall.0, nodes }
}
