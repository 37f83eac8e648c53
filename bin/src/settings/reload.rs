//! Settings that were read again while a server runs: which of the new values it takes over, and
//! which wait for a restart.

use crate::settings::Resolved;
use crate::settings::key::Key;
use crate::settings::value::{Origin, Value};

/// The settings that a running server takes over on SIGHUP.
pub const RELOADABLE: &[&str] = &[
    "s3.access_key_id",
    "s3.secret_access_key",
    "s3.session_token",
    "s3.profile",
    "logging.level",
    "logging.format",
];

impl Key {
    /// Whether a running server takes a new value over.
    #[must_use]
    pub fn is_reloadable(&self) -> bool {
        RELOADABLE.contains(&self.name)
    }
}

/// A setting whose value is another one than the server runs with.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub key: &'static Key,
    /// What the server has run with.
    pub from: Option<Value>,
    /// What it was told now.
    pub to: Option<Value>,
    /// Where that came from.
    pub origin: Origin,
}

/// What is new in `read`, in the order of the settings; `running` takes over what can be. What
/// cannot stays as it was, so that it is reported by every reload until the restart.
pub fn take_over(running: &mut [Resolved], read: &[Resolved]) -> Vec<Change> {
    let mut changes = Vec::new();
    for (running, read) in running.iter_mut().zip(read) {
        if running.value != read.value {
            changes.push(Change {
                key: read.key,
                from: running.value.clone(),
                to: read.value.clone(),
                origin: read.origin.clone(),
            });
        }
        if read.key.is_reloadable() {
            *running = read.clone();
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::flags::SettingFlags;
    use crate::settings::{Settings, Surroundings};

    fn read(given: &[(&str, &str)]) -> Vec<Resolved> {
        let given = given.iter().map(|(name, text)| (Key::index(name).unwrap(), text.to_string()));
        let flags = SettingFlags { config: None, given: given.collect() };
        let around = Surroundings { env: Vec::new(), affinity: vec![0] };
        Settings::load(&flags, &around).unwrap().resolved
    }

    fn names(changes: &[Change]) -> Vec<(&'static str, bool)> {
        changes.iter().map(|change| (change.key.name, change.key.is_reloadable())).collect()
    }

    #[test]
    fn every_reloadable_setting_exists() {
        for name in RELOADABLE {
            assert!(Key::index(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_can_be_taken_over_is_new_once_and_the_rest_until_the_restart() {
        let mut running = read(&[]);
        let other = read(&[("logging.level", "debug"), ("memory.hot_streams", "7")]);
        let changes = take_over(&mut running, &other);
        assert_eq!(names(&changes), [("memory.hot_streams", false), ("logging.level", true)]);
        let again = take_over(&mut running, &other);
        assert_eq!(names(&again), [("memory.hot_streams", false)]);
        let back = take_over(&mut running, &read(&[]));
        assert_eq!(names(&back), [("logging.level", true)]);
        assert_eq!(back[0].from.as_ref().map(ToString::to_string).as_deref(), Some("debug"));
    }

    #[test]
    fn the_same_value_from_another_place_is_no_change() {
        let mut running = read(&[]);
        assert!(take_over(&mut running, &read(&[("logging.level", "info")])).is_empty());
    }

    #[test]
    fn a_new_secret_is_a_change_and_stays_hidden() {
        let mut running = read(&[("s3.secret_access_key", "old")]);
        let changes = take_over(&mut running, &read(&[("s3.secret_access_key", "new")]));
        assert_eq!(names(&changes), [("s3.secret_access_key", true)]);
        assert!(!format!("{changes:?}").contains("new"));
    }
}
