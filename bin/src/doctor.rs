//! `duolog doctor`: asks the machine everything a server depends on and says what to do about it.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::probe::placement::{Advice, Layout};
use crate::probe::port::Port;
use crate::probe::{affinity, device, direct, latency, memlock, port};
use crate::settings::Settings;
use crate::settings::cpus::write_list;
use crate::settings::key::write_bytes;
use crate::settings::listen::Listen;
use crate::uring::ring;

/// How a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// As it should be.
    Ok,
    /// A server starts, but slower or less safe than it could be.
    Warn,
    /// A server would refuse to start.
    Fail,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One point.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Whose: a node, the bucket; empty for this machine.
    pub subject: String,
    /// What was looked at.
    pub check: String,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub value: String,
    /// What to do; nothing where all is well.
    pub remedy: Option<String>,
}

impl Finding {
    /// A point that is as it should be.
    pub fn ok(check: &str, value: impl Into<String>) -> Self {
        let (subject, check) = (String::new(), check.to_owned());
        Self { subject, check, status: Status::Ok, value: value.into(), remedy: None }
    }

    /// One that is not, and what to do.
    pub fn bad(
        check: &str,
        status: Status,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status, remedy: Some(remedy.into()), ..Self::ok(check, value) }
    }

    /// The same of somebody.
    #[must_use]
    pub fn of(self, subject: &str) -> Self {
        Self { subject: subject.to_owned(), ..self }
    }

    /// A probe's error text is "what happened; what to do".
    pub fn fail(check: &str, error: &impl ToString) -> Self {
        let text = error.to_string();
        let (value, remedy) = text.split_once("; ").unwrap_or((&text, "see the value"));
        Self::bad(check, Status::Fail, value, remedy)
    }
}

/// Looks at everything.
#[must_use]
pub fn examine(settings: &Settings) -> Vec<Finding> {
    let mut findings =
        vec![kernel(), rings(), locked_memory(settings), open_files(), cpus(settings)];
    findings.extend(placement(settings));
    findings.push(clock_source());
    findings.extend(ports(settings));
    match settings.data_dir.as_deref() {
        Some(dir) => findings.extend(disk(dir, settings)),
        None => findings.push(Finding::bad(
            "data directory",
            Status::Warn,
            "not given: the disk was not looked at",
            "run: duolog doctor --data-dir DIR",
        )),
    }
    findings
}

/// What a running server's process and machine can be asked: nothing that writes, and nothing that
/// its own ports stand against.
#[must_use]
pub fn examine_running(settings: &Settings) -> Vec<Finding> {
    let mut findings =
        vec![kernel(), rings(), locked_memory(settings), open_files(), cpus(settings)];
    findings.extend(placement(settings));
    findings.push(clock_source());
    if let Some(dir) = settings.data_dir.as_deref().and_then(nearest_existing) {
        findings.extend([free_space(&dir, settings), write_cache(&dir)]);
    }
    findings
}

/// Oldest kernel with everything the runtime uses.
const KERNEL_MIN: (u32, u32) = (5, 8);

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match parse_release(&release) {
        Some(version) if version < KERNEL_MIN => {
            Finding::bad("kernel", Status::Fail, release, "use Linux 5.8 or newer")
        }
        _ => Finding::ok("kernel", release),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn rings() -> Finding {
    match ring::check() {
        Ok(()) => Finding::ok(
            "io_uring",
            format!(
                "allowed (kernel.io_uring_disabled = {}, {})",
                ring::sysctl(),
                match ring::seccomp_mode() {
                    0 => "no seccomp filter",
                    _ => "the seccomp filter lets it pass",
                }
            ),
        ),
        Err(error) => Finding::fail("io_uring", &error),
    }
}

fn locked_memory(settings: &Settings) -> Finding {
    let limit = memlock::Memlock::read();
    let shards = settings.shards.count;
    match limit.check(shards) {
        Ok(()) => {
            let hard = limit.hard_bytes.map_or_else(|| "unlimited".to_owned(), write_bytes);
            let needed = write_bytes(limit.needed_bytes(shards));
            let exempt = if limit.exempt { "; CAP_IPC_LOCK: not charged" } else { "" };
            Finding::ok("memlock", format!("{hard}, {shards} shards need {needed}{exempt}"))
        }
        Err(error) => Finding::fail("memlock", &error),
    }
}

/// Below this a few thousand clients would use up the descriptors.
const OPEN_FILES_WANTED: u64 = 8192;

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.current {
        Some(files) if files < OPEN_FILES_WANTED => Finding::bad(
            "open files",
            Status::Warn,
            files.to_string(),
            format!("run: ulimit -n {OPEN_FILES_WANTED} (or LimitNOFILE={OPEN_FILES_WANTED})"),
        ),
        Some(files) => Finding::ok("open files", files.to_string()),
        None => Finding::ok("open files", "unlimited"),
    }
}

fn cpus(settings: &Settings) -> Finding {
    let mask = affinity::cpus();
    let shards = settings.shards.count as usize;
    let value = format!("{} (affinity mask), {shards} shards", write_list(&mask));
    if shards > mask.len() {
        let remedy = format!("set shards.count to at most {}, one CPU per shard", mask.len());
        Finding::bad("cpus", Status::Warn, value, remedy)
    } else {
        Finding::ok("cpus", value)
    }
}

/// Where the shards are pinned, against cores, NUMA nodes and interrupts.
fn placement(settings: &Settings) -> Vec<Finding> {
    let Some(shards) = &settings.shards.cpus else {
        return vec![Finding::ok("placement", "shards are not pinned (shards.cpus)")];
    };
    let dir = settings.data_dir.as_deref().and_then(nearest_existing);
    let disk = dir.and_then(|dir| device::of(&dir)).map(|device| device.name);
    let advice = Layout::read(Path::new("/"), disk.as_deref()).advice(shards);
    if advice.is_empty() {
        return vec![Finding::ok("placement", "nothing stands against these CPUs")];
    }
    let warn =
        |advice: Advice| Finding::bad("placement", Status::Warn, advice.value, advice.remedy);
    advice.into_iter().map(warn).collect()
}

fn clock_source() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Ok(source) = std::fs::read_to_string(path) else {
        return Finding::ok("clock source", "not told by this kernel");
    };
    let source = source.trim();
    if matches!(source, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit") {
        let remedy = "reading this clock costs a microsecond or more; \
                      look in the kernel log why tsc was rejected";
        return Finding::bad("clock source", Status::Warn, source, remedy);
    }
    Finding::ok("clock source", source)
}

fn ports(settings: &Settings) -> Vec<Finding> {
    let listen = &settings.listen;
    let mut findings: Vec<Finding> = listen
        .ports()
        .map(|(setting, address)| {
            let check = if setting == "listen.http" { "HTTP port" } else { "client port" };
            match port::check(Port { address, setting, origin: &settings.origin(setting) }) {
                Ok(()) => Finding::ok(check, format!("{address} is free")),
                // The usual reason is a running Duolog, which is fine for a doctor's visit.
                Err(error @ port::PortError::InUse { .. }) => {
                    Finding { status: Status::Warn, ..Finding::fail(check, &error) }
                }
                Err(error) => Finding::fail(check, &error),
            }
        })
        .collect();
    if let Some(exposure) = listen.exposure() {
        let remedy = Listen::EXPOSURE_REMEDY;
        findings.push(Finding::bad("HTTP access", Status::Warn, exposure, remedy));
    }
    findings
}

fn disk(dir: &Path, settings: &Settings) -> Vec<Finding> {
    let Some(existing) = nearest_existing(dir) else {
        let value = format!("no part of {} exists", dir.display());
        return vec![Finding::bad("data directory", Status::Fail, value, "create it")];
    };
    let mut findings = Vec::new();
    let value = if existing == dir {
        dir.display().to_string()
    } else {
        format!("{} (to be created; looked at {})", dir.display(), existing.display())
    };
    findings.push(Finding::ok("data directory", value));
    findings.push(free_space(&existing, settings));
    match direct::check(&existing) {
        Ok(found) => {
            let source = if found.told_by_kernel { "told by the kernel" } else { "assumed" };
            let (align, file_system) = (found.offset_align_bytes, &found.file_system);
            let value = format!("enforced on {file_system}, alignment {align} bytes ({source})");
            findings.push(Finding::ok("direct I/O", value));
            findings.push(write_cache(&existing));
            findings.push(durable_write(&existing));
        }
        Err(error) => findings.push(Finding::fail("direct I/O", &error)),
    }
    findings
}

fn nearest_existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let found = absolute.ancestors().find(|path| path.is_dir())?;
    Some(if found == absolute { dir.to_owned() } else { found.to_owned() })
}

fn free_space(dir: &Path, settings: &Settings) -> Finding {
    // Each shard starts with one segment in use and one prepared ahead.
    let segment = u64::from(settings.log.segment_size_bytes);
    let needed = segment * 2 * u64::from(settings.shards.count);
    match rustix::fs::statvfs(dir) {
        Ok(space) => {
            let free = space.f_bavail * space.f_frsize;
            let value = format!("{} MiB, first segments take {} MiB", free >> 20, needed >> 20);
            if free < needed {
                let remedy = "free space, or lower log.segment_size_bytes or shards.count";
                Finding::bad("free space", Status::Fail, value, remedy)
            } else {
                Finding::ok("free space", value)
            }
        }
        Err(error) => Finding::bad("free space", Status::Warn, error.to_string(), "check the path"),
    }
}

fn write_cache(dir: &Path) -> Finding {
    let Some(device) = device::of(dir) else {
        let remedy =
            "make sure that the storage below has power-loss protection or honours flushes";
        return Finding::bad("write cache", Status::Warn, "no single block device", remedy);
    };
    let name = &device.name;
    match (device.volatile_cache, device.fua) {
        (Some(false), _) => Finding::ok("write cache", format!("{name}: write through")),
        (Some(true), Some(true)) => Finding::ok("write cache", format!("{name}: volatile, FUA")),
        (Some(true), _) => Finding::bad(
            "write cache",
            Status::Warn,
            format!("{name}: volatile, no FUA: every durable write flushes the whole cache"),
            "safe but slower; a device with power-loss protection needs no flush",
        ),
        (None, _) => Finding::bad(
            "write cache",
            Status::Warn,
            format!("{name}: not told by the kernel"),
            "make sure that the device has power-loss protection or honours flushes",
        ),
    }
}

/// A durable write slower than this makes each append slow; disks and network storage reach it.
const DURABLE_WRITE_SLOW_US: u64 = 2000;

fn durable_write(dir: &Path) -> Finding {
    match latency::measure(dir) {
        Ok(found) => {
            let (p50, p99, count) = (found.p50_us, found.p99_us, found.count);
            let value = format!("4 KiB O_DSYNC: p50 {p50} us, p99 {p99} us ({count} writes)");
            if p50 > DURABLE_WRITE_SLOW_US {
                let remedy = "every append waits for one such write; use a faster device";
                Finding::bad("durable write", Status::Warn, value, remedy)
            } else {
                Finding::ok("durable write", value)
            }
        }
        Err(error) => {
            Finding::bad("durable write", Status::Fail, error.to_string(), "check the disk")
        }
    }
}

/// The table for people.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut subject = "";
    for finding in findings {
        if finding.subject != subject {
            subject = &finding.subject;
            out.push_str(&format!("\n{subject}\n"));
        }
        let (word, check) = (finding.status.word(), &finding.check);
        out.push_str(&format!("{word:4}  {check:width$}  {}\n", finding.value));
        if let Some(remedy) = &finding.remedy {
            out.push_str(&format!("{:4}  {:width$}  -> {remedy}\n", "", ""));
        }
    }
    out
}

/// The same for machines.
#[must_use]
pub fn json(findings: &[Finding]) -> Json {
    let entries = findings.iter().map(|finding| {
        json!({
            "subject": finding.subject,
            "check": finding.check,
            "status": finding.status.word().to_lowercase(),
            "value": finding.value,
            "remedy": finding.remedy,
        })
    });
    json!({ "ok": !failed(findings), "findings": entries.collect::<Vec<_>>() })
}

/// Whether a server would refuse to start.
#[must_use]
pub fn failed(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.status == Status::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Surroundings;
    use crate::settings::flags::SettingFlags;
    use crate::settings::key::Key;

    fn settings(data_dir: &str) -> Settings {
        let index = Key::index("data_dir").unwrap();
        let flags = SettingFlags { config: None, given: vec![(index, data_dir.to_owned())] };
        let around = Surroundings { env: Vec::new(), affinity: vec![0] };
        Settings::load(&flags, &around).unwrap()
    }

    /// Every point that is not well comes with a remedy, in the table and in JSON.
    #[test]
    fn what_is_not_well_has_a_remedy() {
        let findings = examine(&settings("/dev/shm/duolog-missing/data"));
        for finding in &findings {
            assert_eq!(finding.status == Status::Ok, finding.remedy.is_none(), "{finding:?}");
        }
        let table = table(&findings);
        assert!(findings.iter().all(|finding| table.contains(&finding.value)), "{table}");
        let json = json(&findings);
        assert_eq!(json["findings"].as_array().unwrap().len(), findings.len());
    }

    #[test]
    fn memory_file_systems_fail_the_visit() {
        if !Path::new("/dev/shm").is_dir() {
            eprintln!("skipped: this machine has no tmpfs at /dev/shm");
            return;
        }
        let findings = examine(&settings("/dev/shm"));
        let direct = findings.iter().find(|finding| finding.check == "direct I/O").unwrap();
        assert_eq!(direct.status, Status::Fail);
        assert!(direct.remedy.as_deref().unwrap().contains("ext4"), "{direct:?}");
        assert!(failed(&findings));
    }

    #[test]
    fn kernel_releases_compare_as_numbers() {
        assert_eq!(parse_release("6.18.44-fc"), Some((6, 18)));
        assert_eq!(parse_release("5.4.0-200-generic"), Some((5, 4)));
        assert!(parse_release("5.10.1").unwrap() > KERNEL_MIN);
        assert_eq!(parse_release("odd"), None);
    }
}
