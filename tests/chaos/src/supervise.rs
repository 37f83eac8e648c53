//! Runs scenarios one by one, each in a process of its own, and clears away whatever one leaves:
//! processes, mounts, namespaces, files.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duolog_tests::process::{Stopwatch, pause, scratch, within};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value as Json, json};

use crate::act::result_file;
use crate::ground::{Namespaces, hub};
use crate::scenario::Scenario;

/// How long a run may take: the longest takes a minute.
const RUN_MAX: Duration = Duration::from_secs(300);
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
    pub fn best() -> (Self, Option<String>) {
        if !rustix::process::geteuid().is_root() {
            return (Self::Proxies, Some("network namespaces need root".to_owned()));
        }
        let prefix = prefix(0);
        let made = Namespaces::make(&prefix);
        Namespaces::remove(&prefix);
        match made {
            Ok(()) => (Self::Namespaces, None),
            Err(error) => (Self::Proxies, Some(error.to_string())),
        }
    }
}

fn prefix(run: u32) -> String {
    format!("duolog-chaos-{}-{run}", std::process::id())
}

/// What is run, and where its findings go.
#[derive(Debug)]
pub struct Supervisor {
    /// Where runs take place.
    pub ground: Ground,
    /// Each run has a folder in it.
    pub report: PathBuf,
    runs: u32,
}

impl Supervisor {
    /// Runs take place on `ground` and tell of themselves below `report`.
    #[must_use]
    pub const fn new(ground: Ground, report: PathBuf) -> Self {
        Self { ground, report, runs: 0 }
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
        let stage = scratch();
        let prefix = prefix(self.runs);
        let entered = self.ground == Ground::Namespaces;
        if entered {
            Namespaces::make(&prefix)?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["act", "--scenario", scenario.name, "--seed", &seed.to_string()]);
        command.arg("--report").arg(&folder);
        if entered {
            command.args(["--prefix", &prefix]);
        }
        command.env("DUOLOG_TEST_DIR", stage.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.join("stderr.txt"))?);
        let spawned = if entered {
            within(&hub(&prefix), || command.spawn()).and_then(|spawned| spawned)
        } else {
            command.spawn()
        };
        let ended = spawned.and_then(|mut child| wait(&mut child));
        unmount_below(stage.path());
        if entered {
            Namespaces::remove(&prefix);
        }
        let why = match ended? {
            true => "the run ended without a result: see stderr.txt",
            false => "the run took too long",
        };
        let told = fs::read_to_string(result_file(&folder)).unwrap_or_default();
        let result = serde_json::from_str(&told).unwrap_or_else(|_| {
            let name = scenario.name;
            json!({ "scenario": name, "seed": seed, "verdict": "failed", "why": why })
        });
        Ok(result)
    }
}

/// Where a run tells of itself.
#[must_use]
pub fn run_folder(report: &Path, scenario: &str, seed: &Json) -> PathBuf {
    report.join(format!("{scenario}-{seed}"))
}

/// Whether it ended by itself. Its nodes end with it in any case.
fn wait(child: &mut Child) -> io::Result<bool> {
    let (watch, group) = (Stopwatch::start(), Pid::from_child(child));
    let ended = loop {
        if child.try_wait()?.is_some() {
            break true;
        }
        if watch.elapsed() > RUN_MAX {
            break false;
        }
        pause(LOOK);
    };
    // Nobody may be left: then there is no such group.
    let _ = kill_process_group(group, Signal::KILL);
    if !ended {
        child.wait()?;
    }
    Ok(ended)
}

/// Unmounts what a run that died has left mounted.
fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        for _ in 0..50 {
            let ran = Command::new("umount").arg(place).status();
            if ran.is_ok_and(|status| status.success()) {
                break;
            }
            pause(LOOK);
        }
    }
}
