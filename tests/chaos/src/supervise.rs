//! Runs scenarios one by one, each in a process of its own, and clears away whatever one leaves:
//! processes, mounts, namespaces, files.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duolog_tests::process::{Stopwatch, pause, scratch};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value as Json, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::act::result_file;
use crate::ground::{Namespaces, OURS};
use crate::scenario::Scenario;

/// How long a run may take: the longest takes a minute.
const RUN_MAX: Duration = Duration::from_secs(420);
/// Pause between two looks at a run.
const LOOK: Duration = Duration::from_millis(20);

/// Where runs take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// In network namespaces.
    Namespaces,
    /// On the loopback.
    Proxies,
}

impl Ground {
    /// Namespaces if they can be made here, else why not.
    #[must_use]
    pub fn best() -> (Self, Option<String>) {
        if !rustix::process::geteuid().is_root() {
            return (Self::Proxies, Some("network namespaces need root".to_owned()));
        }
        Namespaces::sweep();
        match Prefix::make(0) {
            Ok(_) => (Self::Namespaces, None),
            Err(error) => (Self::Proxies, Some(error.to_string())),
        }
    }
}

/// The namespaces of a run; removed with the value.
struct Prefix(String);

impl Prefix {
    fn make(run: u32) -> io::Result<Self> {
        let prefix = Self(format!("{OURS}{}-{run}", std::process::id()));
        Namespaces::make(&prefix.0)?;
        Ok(prefix)
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        Namespaces::remove(&self.0);
    }
}

/// What is run, and where its findings go.
#[derive(Debug)]
pub struct Supervisor {
    /// Where runs take place.
    pub ground: Ground,
    /// Each run has a folder in it.
    pub report: PathBuf,
    runs: u32,
    interrupted: Arc<AtomicBool>,
}

/// How a run's process ended.
enum Ended {
    Well,
    Badly,
    TooLate,
    Interrupted,
}

impl Supervisor {
    /// Runs take place on `ground` and tell of themselves below `report`. From now on SIGINT and
    /// SIGTERM end the run under way instead of this process.
    #[must_use]
    pub fn new(ground: Ground, report: PathBuf) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&interrupted);
        std::thread::spawn(move || listen(&told));
        Self { ground, report, runs: 0, interrupted }
    }

    /// Whether somebody has asked for the end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs a scenario; its result.
    ///
    /// # Errors
    /// The run could not be set up or started.
    pub fn run(&mut self, scenario: &Scenario, seed: u64) -> io::Result<Json> {
        self.runs += 1;
        let folder = run_folder(&self.report, scenario.name, &json!(seed));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let namespaces = self.ground == Ground::Namespaces;
        let prefix = namespaces.then(|| Prefix::make(self.runs)).transpose()?;
        let stage = scratch();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["act", "--scenario", scenario.name, "--seed", &seed.to_string()]);
        command.arg("--report").arg(&folder);
        if let Some(Prefix(prefix)) = &prefix {
            command.args(["--prefix", prefix]);
        }
        command.env("DUOLOG_TEST_DIR", stage.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.join("stderr.txt"))?);
        let ended = self.wait(&mut command.spawn()?)?;
        unmount_below(stage.path());
        let result = result(&folder, scenario.name, seed, &ended);
        if result["verdict"] == "failed" {
            // For whoever looks into it; where it lies on another disk the logs have to do.
            let _ = fs::rename(stage.path(), folder.join("data"));
        }
        Ok(result)
    }

    /// Waits for a run's end. Its nodes end with it in any case.
    fn wait(&self, child: &mut Child) -> io::Result<Ended> {
        let (watch, group) = (Stopwatch::start(), Pid::from_child(child));
        let ended = loop {
            match child.try_wait()? {
                Some(status) if status.success() => break Ended::Well,
                Some(_) => break Ended::Badly,
                None if self.is_interrupted() => break Ended::Interrupted,
                None if watch.elapsed() > RUN_MAX => break Ended::TooLate,
                None => pause(LOOK),
            }
        };
        // Nobody may be left: then there is no such group.
        let _ = kill_process_group(group, Signal::KILL);
        child.wait()?;
        Ok(ended)
    }
}

fn listen(told: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let [interrupt, terminate] = kinds.map(signal);
        let mut interrupt = interrupt.expect("the system takes a handler");
        let mut terminate = terminate.expect("the system takes a handler");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        told.store(true, Ordering::Relaxed);
    });
}

/// Where a run tells of itself.
#[must_use]
pub fn run_folder(report: &Path, scenario: &str, seed: &Json) -> PathBuf {
    report.join(format!("{scenario}-{seed}"))
}

/// What the run says of itself, unless its process ended otherwise.
fn result(folder: &Path, scenario: &str, seed: u64, ended: &Ended) -> Json {
    let failed =
        |why: &str| json!({ "scenario": scenario, "seed": seed, "verdict": "failed", "why": why });
    let told = fs::read_to_string(result_file(folder)).unwrap_or_default();
    let told: Option<Json> = serde_json::from_str(&told).ok();
    match (ended, told) {
        (Ended::TooLate, _) => failed("the run took too long"),
        (Ended::Interrupted, _) => failed("the run was interrupted"),
        (Ended::Well, Some(told)) => told,
        (Ended::Badly, Some(told)) if told["verdict"] == "failed" => told,
        _ => failed("the run died: see stderr.txt"),
    }
}

/// Unmounts what a run that died has left mounted.
fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        for _ in 0..50 {
            let ran = Command::new("umount").arg(place).output();
            if ran.is_ok_and(|ran| ran.status.success()) {
                break;
            }
            pause(LOOK);
        }
    }
}
