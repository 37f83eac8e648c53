//! Settings: parsed once from flags, environment, file and defaults (in this order of weight),
//! checked all together, handed on as typed structs. Owns [`Settings`] and the merging of layers.

pub mod cluster;
pub mod cpus;
pub mod file;
pub mod flags;
pub mod key;
pub mod listen;
pub mod reload;
pub mod s3;
pub mod show;
pub mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use duolog_engine::limits::APPEND_OVERHEAD_MAX_BYTES;

use crate::exit::{Exit, Failure};
use crate::settings::cluster::Cluster;
use crate::settings::cpus::CpuPlan;
use crate::settings::flags::SettingFlags;
use crate::settings::key::{ENV_PREFIX, KEYS, Key, SHARDS_MAX};
use crate::settings::listen::Listen;
use crate::settings::s3::S3;
use crate::settings::value::{Origin, SettingError, Value};

/// A variable of the environment that names the configuration file.
pub const ENV_CONFIG: &str = "DUOLOG_CONFIG";
/// `DUOLOG_` variables that are no settings but have a meaning for other parts of the program.
pub const ENV_OTHERS: [&str; 2] = [ENV_CONFIG, "DUOLOG_ADDR"];

/// All settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `data_dir`; must be there for `serve`.
    pub data_dir: Option<PathBuf>,
    /// `standalone`.
    pub standalone: bool,
    /// `listen.client`, `listen.http`, `advertise.http` and `http.*`
    pub listen: Listen,
    /// `shards.*`
    pub shards: Shards,
    /// `log.*`
    pub log: Log,
    /// `limits.*`
    pub limits: Limits,
    /// `memory.*`
    pub memory: Memory,
    /// `s3.*`
    pub s3: S3,
    /// `listen.peer`, `advertise.*`, `heartbeat.*` and the other timings of a pair.
    pub cluster: Cluster,
    /// `watchdog.*`
    pub watchdog: Watchdog,
    /// `logging.*`
    pub logging: Logging,
    /// Every value with its origin, in the order of [`KEYS`].
    pub resolved: Vec<Resolved>,
}

/// How many shards, and where they run.
#[derive(Clone, Debug)]
pub struct Shards {
    /// `shards.count`, 1..=512.
    pub count: u32,
    /// `shards.cpus`: one set of CPUs per shard, or no pinning.
    pub cpus: Option<Vec<Vec<usize>>>,
    /// `shards.spin_us`, 0..=1000.
    pub spin_us: u64,
}

/// The log on disk.
#[derive(Clone, Debug)]
pub struct Log {
    /// `log.segment_size_bytes`
    pub segment_size_bytes: u32,
    /// `log.blocks_in_flight`
    pub blocks_in_flight: usize,
    /// `log.idempotency_window`, appends per shard.
    pub idempotency_window: usize,
}

/// What one request, connection or shard may ask for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `limits.event_max_bytes`
    pub event_max_bytes: usize,
    /// `limits.connection_in_flight`, requests.
    pub connection_in_flight: usize,
    /// `limits.shard_in_flight`, requests.
    pub shard_in_flight: usize,
    /// `limits.subscriber_stall_ms`
    pub subscriber_stall_ms: u64,
}

/// Memory budgets per shard.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `memory.hot_streams`
    pub hot_streams: usize,
    /// `memory.recent_blocks_bytes`
    pub recent_blocks_bytes: usize,
}

/// The thread that watches the shards.
#[derive(Clone, Debug)]
pub struct Watchdog {
    /// `watchdog.bound_ms`
    pub bound_ms: u64,
}

/// Log output.
#[derive(Clone, Debug)]
pub struct Logging {
    /// `logging.level`
    pub level: String,
    /// `logging.format`: auto, human or json.
    pub format: String,
}

/// A setting's value and where it came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The key.
    pub key: &'static Key,
    /// The value, if there is one.
    pub value: Option<Value>,
    /// Where it came from.
    pub origin: Origin,
}

/// What the process was given: everything `Settings` depend on, passed in.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// All environment variables that start with `DUOLOG_`.
    pub env: Vec<(String, Option<String>)>,
    /// CPUs in the process's affinity mask, ascending.
    pub affinity: Vec<usize>,
}

impl Settings {
    /// Merges the layers. Every mistake of every layer is reported, one line each.
    pub fn load(flags: &SettingFlags, around: &Surroundings) -> Result<Self, Failure> {
        Self::merge(flags, around).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::new(Exit::Usage, lines.join("\n"))
        })
    }

    fn merge(flags: &SettingFlags, around: &Surroundings) -> Result<Self, Vec<SettingError>> {
        let mut errors = Vec::new();
        let mut resolved: Vec<Resolved> = KEYS
            .iter()
            .map(|key| Resolved { key, value: key.default_value(), origin: Origin::Default })
            .collect();
        let mut put = |index: usize, value: Value, origin: Origin| {
            resolved[index].value = Some(value);
            resolved[index].origin = origin;
        };
        let from_env = around.env.iter().find(|(name, _)| name == ENV_CONFIG);
        let from_env = from_env.and_then(|(_, path)| path.as_ref()).map(PathBuf::from);
        if let Some(path) = flags.config.clone().or(from_env) {
            let layer = file::read(Path::new(&path));
            errors.extend(layer.errors);
            layer.values.into_iter().for_each(|(index, value, origin)| put(index, value, origin));
        }
        for (name, text) in &around.env {
            match read_env(name, text.as_deref()) {
                Ok(Some((index, value))) => put(index, value, Origin::Env(name.clone())),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        for (index, text) in &flags.given {
            let origin = Origin::Flag(KEYS[*index].flag());
            match KEYS[*index].parse(text, &origin) {
                Ok(value) => put(*index, value, origin),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            resolve_shard_count(&mut resolved, around);
            errors = clashes(&Values(&resolved), around);
        }
        if errors.is_empty() { Ok(Self::typed(resolved)) } else { Err(errors) }
    }

    fn typed(resolved: Vec<Resolved>) -> Self {
        let values = Values(&resolved);
        let count = values.number("shards.count") as u32;
        let cpus = values.cpus("shards.cpus").map(|plan| {
            (0..count as usize)
                .map(|shard| plan.shard(shard).expect("a plan for fewer shards is a clash"))
                .collect()
        });
        Self {
            data_dir: values.path("data_dir"),
            standalone: values.switch("standalone"),
            listen: Listen::typed(&values),
            shards: Shards { count, cpus, spin_us: values.number("shards.spin_us") },
            log: Log {
                segment_size_bytes: values.number("log.segment_size_bytes") as u32,
                blocks_in_flight: values.number("log.blocks_in_flight") as usize,
                idempotency_window: values.number("log.idempotency_window") as usize,
            },
            limits: Limits {
                event_max_bytes: values.number("limits.event_max_bytes") as usize,
                connection_in_flight: values.number("limits.connection_in_flight") as usize,
                shard_in_flight: values.number("limits.shard_in_flight") as usize,
                subscriber_stall_ms: values.number("limits.subscriber_stall_ms"),
            },
            memory: Memory {
                hot_streams: values.number("memory.hot_streams") as usize,
                recent_blocks_bytes: values.number("memory.recent_blocks_bytes") as usize,
            },
            s3: S3::typed(&values),
            cluster: Cluster::typed(&values),
            watchdog: Watchdog { bound_ms: values.number("watchdog.bound_ms") },
            logging: Logging {
                level: values.text("logging.level"),
                format: values.text("logging.format"),
            },
            resolved,
        }
    }

    /// The data directory, or what to do without one.
    pub fn data_dir(&self) -> Result<&Path, Failure> {
        self.data_dir.as_deref().ok_or_else(|| {
            let text = "data_dir is not set: give --data-dir DIR, DUOLOG_DATA_DIR, \
                        or data_dir in the file of --config";
            Failure::new(Exit::Usage, text)
        })
    }

    /// Where the value of the setting `name` came from, for messages.
    #[must_use]
    pub fn origin(&self, name: &str) -> String {
        let resolved = self.resolved.iter().find(|resolved| resolved.key.name == name);
        resolved.map_or_else(|| "unknown".to_owned(), |resolved| resolved.origin.to_string())
    }
}

fn read_env(name: &str, text: Option<&str>) -> Result<Option<(usize, Value)>, SettingError> {
    if ENV_OTHERS.contains(&name) {
        return Ok(None);
    }
    let Some(index) = KEYS.iter().position(|key| key.env() == name) else {
        return Err(SettingError::UnknownEnv { name: name.to_owned(), nearest: nearest_env(name) });
    };
    let text = text.ok_or_else(|| SettingError::NotUtf8 { name: name.to_owned() })?;
    let value = KEYS[index].parse(text, &Origin::Env(name.to_owned()))?;
    Ok(Some((index, value)))
}

fn nearest_env(name: &str) -> String {
    let known = KEYS.iter().map(Key::env).chain(ENV_OTHERS.map(str::to_owned));
    let score = |known: &String| {
        let tail = |name: &str| name.strip_prefix(ENV_PREFIX).unwrap_or(name).to_owned();
        strsim::normalized_damerau_levenshtein(&tail(name), &tail(known))
    };
    known.max_by(|a, b| score(a).total_cmp(&score(b))).expect("the table of keys is not empty")
}

/// Without a value the count follows the CPUs: those of the plan, else those of the mask.
fn resolve_shard_count(resolved: &mut [Resolved], around: &Surroundings) {
    let planned = Values(resolved).cpus("shards.cpus").map(CpuPlan::shard_count);
    let count = planned.unwrap_or(around.affinity.len()).clamp(1, SHARDS_MAX as usize);
    let index = Key::index("shards.count").expect("the key is in the table");
    resolved[index].value.get_or_insert(Value::Number(count as u64));
}

/// What is wrong between values that are right alone.
fn clashes(values: &Values<'_>, around: &Surroundings) -> Vec<SettingError> {
    let mut errors = Vec::new();
    let mut clash = |first: &str, second: &str, reason: String| {
        errors.push(SettingError::Clash {
            first: values.assignment(first),
            second: values.assignment(second),
            reason,
        });
    };
    let event = values.number("limits.event_max_bytes");
    let segment = values.number("log.segment_size_bytes");
    // Beside the largest append: its records' heads, the block's header, the segment's page.
    let needed = event + 2 * APPEND_OVERHEAD_MAX_BYTES as u64 + (64 << 10);
    if needed > segment {
        let reason = format!(
            "the largest append must fit one segment, which takes {needed} bytes; \
             raise the segment size or lower the event size"
        );
        clash("limits.event_max_bytes", "log.segment_size_bytes", reason);
    }
    if let Some(plan) = values.cpus("shards.cpus") {
        let (count, planned) = (values.number("shards.count"), plan.shard_count() as u64);
        let fits = match plan {
            CpuPlan::Pool(_) => planned >= count,
            CpuPlan::PerShard(_) => planned == count,
        };
        if !fits {
            let reason = format!(
                "{planned} entries for {count} shards; a list needs a CPU for each shard, \
                 an array exactly one entry per shard"
            );
            clash("shards.count", "shards.cpus", reason);
        }
        if let Some(outside) = plan.cpus().iter().find(|cpu| !around.affinity.contains(cpu)) {
            errors.push(SettingError::Value {
                key: "shards.cpus",
                given: plan.to_string(),
                origin: values.entry("shards.cpus").origin.clone(),
                allowed: format!(
                    "CPU {outside} is not in the process's affinity mask, which is {}",
                    cpus::write_list(&around.affinity)
                ),
            });
        }
    }
    errors
}

/// Access by name and type; the types follow from the table, so a mistake fails the first test.
struct Values<'a>(&'a [Resolved]);

impl Values<'_> {
    fn entry(&self, name: &str) -> &Resolved {
        &self.0[Key::index(name).expect("settings are read by names of the table")]
    }

    fn assignment(&self, name: &str) -> String {
        let Resolved { value, origin, .. } = self.entry(name);
        let value = value.as_ref().map_or_else(String::new, ToString::to_string);
        format!("{name} = {value} ({origin})")
    }

    fn number(&self, name: &str) -> u64 {
        match self.entry(name).value {
            Some(Value::Number(number)) => number,
            ref other => unreachable!("{name} is a number, not {other:?}"),
        }
    }

    fn switch(&self, name: &str) -> bool {
        matches!(self.entry(name).value, Some(Value::Switch(true)))
    }

    fn text(&self, name: &str) -> String {
        self.entry(name).value.as_ref().map_or_else(String::new, ToString::to_string)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        match &self.entry(name).value {
            Some(Value::Path(path)) => Some(path.clone()),
            _ => None,
        }
    }

    fn address(&self, name: &str) -> SocketAddr {
        match self.entry(name).value {
            Some(Value::Address(address)) => address,
            ref other => unreachable!("{name} is an address, not {other:?}"),
        }
    }

    fn cpus(&self, name: &str) -> Option<&CpuPlan> {
        match &self.entry(name).value {
            Some(Value::Cpus(plan)) => Some(plan),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(env: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            env: env
                .iter()
                .map(|(name, text)| (name.to_string(), Some(text.to_string())))
                .collect(),
            affinity: vec![0, 1, 2, 3, 6],
        }
    }

    fn flags(given: &[(&str, &str)]) -> SettingFlags {
        let given = given.iter().map(|(name, text)| (Key::index(name).unwrap(), text.to_string()));
        SettingFlags { config: None, given: given.collect() }
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("duolog.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn failure(flags: &SettingFlags, around: &Surroundings) -> String {
        let failure = Settings::load(flags, around).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        failure.text
    }

    /// One value per layer; each layer hides the ones below it, and each value knows its layer.
    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let (_dir, path) = file(
            "[log]\nblocks_in_flight = 3\nidempotency_window = 30\n\
                                 segment_size_bytes = \"128MiB\"\n",
        );
        let env = around(&[
            ("DUOLOG_LOG_IDEMPOTENCY_WINDOW", "40"),
            ("DUOLOG_LOG_SEGMENT_SIZE_BYTES", "256MiB"),
        ]);
        let mut flags = flags(&[("log.segment_size_bytes", "512MiB")]);
        flags.config = Some(path.clone());
        let settings = Settings::load(&flags, &env).unwrap();
        assert_eq!(settings.log.segment_size_bytes, 512 << 20);
        assert_eq!(settings.log.idempotency_window, 40);
        assert_eq!(settings.log.blocks_in_flight, 3);
        assert_eq!(settings.limits.connection_in_flight, 1024);
        assert_eq!(settings.origin("log.segment_size_bytes"), "flag --log-segment-size-bytes");
        let env_name = "environment DUOLOG_LOG_IDEMPOTENCY_WINDOW";
        assert_eq!(settings.origin("log.idempotency_window"), env_name);
        assert_eq!(settings.origin("log.blocks_in_flight"), format!("{}:2", path.display()));
        assert_eq!(settings.origin("limits.connection_in_flight"), "default");
    }

    #[test]
    fn the_environment_can_name_the_file() {
        let (_dir, path) = file("standalone = true\n");
        let around = around(&[("DUOLOG_CONFIG", path.to_str().unwrap())]);
        assert!(Settings::load(&flags(&[]), &around).unwrap().standalone);
    }

    #[test]
    fn shard_count_follows_the_mask_or_the_plan() {
        let count =
            |given: &[(&str, &str)]| Settings::load(&flags(given), &around(&[])).unwrap().shards;
        assert_eq!(count(&[]).count, 5);
        assert_eq!(count(&[]).cpus, None);
        let pinned = count(&[("shards.cpus", "1-3")]);
        assert_eq!((pinned.count, pinned.cpus), (3, Some(vec![vec![1], vec![2], vec![3]])));
        let pinned = count(&[("shards.cpus", "1-3"), ("shards.count", "2")]);
        assert_eq!((pinned.count, pinned.cpus), (2, Some(vec![vec![1], vec![2]])));
    }

    #[test]
    fn cpus_outside_the_mask_or_too_few_are_refused() {
        let outside = failure(&flags(&[("shards.cpus", "3-5")]), &around(&[]));
        assert!(outside.contains("CPU 4") && outside.contains("0-3,6"), "{outside}");
        let few = flags(&[("shards.cpus", "0-1"), ("shards.count", "3")]);
        let few = failure(&few, &around(&[]));
        assert!(few.contains("shards.count = 3 (flag --shards-count)"), "{few}");
    }

    #[test]
    fn unknown_variables_name_the_nearest_one() {
        let text = failure(&flags(&[]), &around(&[("DUOLOG_SHARD_COUNT", "2")]));
        assert_eq!(
            text,
            "unknown environment variable DUOLOG_SHARD_COUNT: did you mean DUOLOG_SHARDS_COUNT?"
        );
        assert!(Settings::load(&flags(&[]), &around(&[("DUOLOG_ADDR", "x")])).is_ok());
    }

    #[test]
    fn every_mistake_is_reported_not_only_the_first() {
        let flags = flags(&[("shards.count", "0"), ("listen.client", "nowhere")]);
        let text = failure(&flags, &around(&[("DUOLOG_STANDALONE", "maybe")]));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn an_event_must_fit_a_segment() {
        let flags = flags(&[("log.segment_size_bytes", "16MiB")]);
        let text = failure(&flags, &around(&[]));
        assert!(text.contains("limits.event_max_bytes") && text.contains("segment"), "{text}");
    }

    #[test]
    fn a_missing_file_is_one_clear_line() {
        let flags = SettingFlags { config: Some("/nowhere/duolog.toml".into()), given: Vec::new() };
        let text = failure(&flags, &around(&[]));
        assert!(text.starts_with("cannot read the configuration file /nowhere"), "{text}");
    }

    #[test]
    fn without_a_data_directory_the_message_names_all_three_ways() {
        let settings = Settings::load(&flags(&[]), &around(&[])).unwrap();
        let text = settings.data_dir().unwrap_err().text;
        assert!(text.contains("--data-dir") && text.contains("DUOLOG_DATA_DIR"), "{text}");
    }
}
