//! `duolog top` in a real terminal: a tmux pane.

use std::process::Command;
use std::time::Duration;

use duolog_tests::pair::{Pair, PairOptions};
use duolog_tests::process::{duolog, quiet, run, skip, until};

/// How long the screen may take to show something.
const SHOWN_MAX: Duration = Duration::from_secs(30);

/// A tmux server of its own with one pane that runs a shell. Ended when dropped.
struct Pane {
    socket: String,
}

impl Pane {
    /// Opens it; nothing, with the reason, where tmux cannot be had.
    fn open(name: &str, width: u16, height: u16) -> Result<Self, String> {
        let pane = Self { socket: format!("duolog-{name}-{}", std::process::id()) };
        let (width, height) = (width.to_string(), height.to_string());
        let shell = ["env", "-u", "DUOLOG_ADDR", "PS1=ready$ ", "sh"];
        let mut arguments = vec!["-f", "/dev/null", "new-session", "-d", "-s", "top"];
        arguments.extend(["-x", &width, "-y", &height]);
        arguments.extend(shell);
        pane.tmux(&arguments)?;
        Ok(pane)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("tmux");
        command.env("TERM", "xterm-256color").env_remove("TMUX");
        let ran = command.args(["-L", &self.socket]).args(arguments).output();
        let ran = ran.map_err(|error| format!("no tmux: {error}"))?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    fn keys(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys", "-t", "top"];
        arguments.extend_from_slice(keys);
        self.tmux(&arguments).expect("keys arrive");
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "top"]).expect("the pane can be captured")
    }

    /// Waits until the screen shows all of it.
    fn shows(&self, parts: &[&str]) -> String {
        let mut screen = String::new();
        let found = until_or(SHOWN_MAX, || {
            screen = self.screen();
            parts.iter().all(|part| screen.contains(part)).then_some(())
        });
        assert!(found, "{parts:?} in\n{screen}");
        screen
    }
}

fn until_or(limit: Duration, mut look: impl FnMut() -> Option<()>) -> bool {
    let watch = duolog_tests::process::Stopwatch::start();
    until(limit + Duration::from_secs(5), "a look", || {
        (look().is_some() || watch.elapsed() > limit).then_some(())
    });
    watch.elapsed() <= limit
}

impl Drop for Pane {
    fn drop(&mut self) {
        // Its own server, by its own socket.
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Promised: `duolog top` shows both nodes, fits itself into a narrow pane, shows that a node is
/// gone and who leads then, follows the keys, and leaves the terminal as it was.
/// Provoked: in a tmux pane of 120x30 against a pair under load; narrowed to 60x20; kill -9 of the
/// leader; tab, p, q.
/// Broken: something is not shown, a line is wider than the pane, the shell's screen does not come
/// back or does not echo.
#[test]
fn top_shows_the_pair_in_a_terminal_and_gives_it_back() {
    let _alone = quiet();
    let pane = match Pane::open("top", 120, 30) {
        Ok(pane) => pane,
        Err(reason) => return skip("top_shows_the_pair_in_a_terminal", &reason),
    };
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked(&crowd, 50);
    let [one, other] = pair.members.map(|number| pair.options[number].address.to_string());
    pane.keys(&["-l", "echo before-$((40+2))"]);
    pane.keys(&["Enter"]);
    pane.shows(&["before-42"]);
    let program = duolog().display();
    pane.keys(&["-l", &format!("{program} top --interval-ms 200 --addr {one},{other}")]);
    pane.keys(&["Enter"]);
    let marked = format!(">{one}");
    let screen = pane.shows(&["duolog top", &marked, "leader", "follower", "EVENTS/S", "MEMORY"]);
    assert!(!screen.contains("before-42"), "a screen of its own\n{screen}");
    pane.keys(&["Tab"]);
    pane.shows(&[&format!(">{other}"), &format!("shards of {other}")]);
    pane.keys(&["p"]);
    pane.shows(&["PAUSED"]);
    pane.keys(&["p"]);
    pane.tmux(&["resize-window", "-t", "top", "-x", "60", "-y", "20"]).expect("it is resized");
    let fits = until_or(SHOWN_MAX, || {
        let screen = pane.screen();
        let fits = screen.lines().all(|line| line.chars().count() <= 60);
        (fits && !screen.contains("MEMORY") && screen.contains("q quit")).then_some(())
    });
    assert!(fits, "{}", pane.screen());
    pair.kill(0);
    pair.until_leads(1);
    pane.shows(&["unreachable", "leader", "promotion is finished"]);
    pane.keys(&["q"]);
    pane.shows(&["before-42"]);
    pane.keys(&["-l", "echo after-$((40+2))"]);
    pane.keys(&["Enter"]);
    pane.shows(&["after-42"]);
    pair.start(0);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: without a terminal `top` says so; `--once` prints a frame and `--json` a document with
/// rates, with the exit codes of `status`.
/// Provoked: each of them against a whole pair and one with a node gone.
/// Broken: a rate is missing, or the exit code does not tell.
#[test]
fn top_prints_one_frame_or_document() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked(&crowd, 50);
    let addresses = pair.members.map(|number| pair.options[number].address.to_string()).join(",");
    let refused = run(&["top", "--addr", &addresses]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.errors.contains("--once"), "{refused:?}");
    let told = run(&["top", "--json", "--interval-ms", "300", "--addr", &addresses]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let told = told.json();
    assert!(told["nodes"][0]["events_per_s"].as_f64() > Some(0.0), "{told:#}");
    assert!(told["nodes"][0]["writes_per_s"].as_f64() > Some(0.0), "{told:#}");
    drop(crowd.finish());
    pair.kill(1);
    let frame = run(&["top", "--once", "--interval-ms", "100", "--addr", &addresses]);
    assert_eq!(frame.code, Some(1), "{frame:?}");
    for part in ["leader", "unreachable", "shards of", "EVENTS/S"] {
        assert!(frame.output.contains(part), "{part:?} in\n{}", frame.output);
    }
}
