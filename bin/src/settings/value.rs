//! A setting's value and where it came from. Owns the checks that concern one value alone.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::cpus::{self, CpuPlan};
use crate::settings::key::{Fallback, Key, Kind};

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// For [`Kind::Switch`].
    Switch(bool),
    /// For [`Kind::Number`] and [`Kind::Bytes`].
    Number(u64),
    /// For [`Kind::Choice`] and [`Kind::Text`].
    Text(String),
    /// For [`Kind::Secret`].
    Secret(Secret),
    /// For [`Kind::Path`].
    Path(PathBuf),
    /// For [`Kind::Address`] and [`Kind::AddressOrOff`].
    Address(SocketAddr),
    /// For [`Kind::AddressOrOff`]: nowhere.
    Off,
    /// For [`Kind::Cpus`].
    Cpus(CpuPlan),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
            Self::Secret(_) => f.write_str(Secret::SHOWN),
            Self::Path(value) => value.display().fmt(f),
            Self::Address(value) => value.fmt(f),
            Self::Off => f.write_str("off"),
            Self::Cpus(value) => value.fmt(f),
        }
    }
}

/// A text that no output ever has.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Secret {
    /// What is shown in its place.
    pub const SHOWN: &str = "(hidden)";
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::SHOWN)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This flag.
    Flag(String),
    /// This environment variable.
    Env(String),
    /// This line of this file.
    File {
        /// As given to `--config`.
        path: PathBuf,
        /// 1-based.
        line: usize,
    },
    /// The built-in default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// What is wrong with the configuration. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A value outside its limits or of the wrong type.
    #[error("{key} = {given} ({origin}): {allowed}")]
    Value {
        /// The setting.
        key: &'static str,
        /// The value as given.
        given: String,
        /// Where.
        origin: Origin,
        /// What is allowed.
        allowed: String,
    },
    /// A key in the file that does not exist.
    #[error("{}:{line}: unknown setting {name}: did you mean {nearest}?", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: usize,
        /// As given.
        name: String,
        /// The most similar key.
        nearest: &'static str,
    },
    /// A `DUOLOG_` variable that does not exist.
    #[error("unknown environment variable {name}: did you mean {nearest}?")]
    UnknownEnv {
        /// As given.
        name: String,
        /// The most similar variable.
        nearest: String,
    },
    /// An environment variable that is not UTF-8.
    #[error("environment variable {name} is not UTF-8")]
    NotUtf8 {
        /// Its name.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The file is no TOML.
    #[error("{}:{line}: not valid TOML: {reason}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: usize,
        /// The parser's reason.
        reason: String,
    },
    /// Two values that do not go together.
    #[error("{first} and {second} do not go together: {reason}")]
    Clash {
        /// `key = value (origin)`.
        first: String,
        /// `key = value (origin)`.
        second: String,
        /// Why not, and what would.
        reason: String,
    },
}

impl Key {
    /// Reads a value given as text: by a flag, a variable, or a string in the file.
    pub fn parse(&self, text: &str, origin: &Origin) -> Result<Value, SettingError> {
        let refuse = |allowed: String| SettingError::Value {
            key: self.name,
            given: match self.kind {
                Kind::Secret => Secret::SHOWN.to_owned(),
                _ => format!("{text:?}"),
            },
            origin: origin.clone(),
            allowed: format!("allowed is {allowed}"),
        };
        let value = match self.kind {
            Kind::Switch => text.parse().ok().map(Value::Switch),
            Kind::Path if text.is_empty() => None,
            Kind::Path => Some(Value::Path(PathBuf::from(text))),
            Kind::AddressOrOff if matches!(text, "" | "off") => Some(Value::Off),
            Kind::Address | Kind::AddressOrOff => text.parse().ok().map(Value::Address),
            Kind::Number { .. } => parse_number(text).map(Value::Number),
            Kind::Bytes { .. } => parse_bytes(text).map(Value::Number),
            Kind::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Kind::Text { .. } => {
                let right = !text.trim().is_empty() && !text.contains(char::is_control);
                right.then(|| Value::Text(text.to_owned()))
            }
            Kind::Secret => {
                let right = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
                right.then(|| Value::Secret(Secret(text.to_owned())))
            }
            Kind::Cpus => match cpus::parse_list(text) {
                Ok(cpus) => Some(Value::Cpus(CpuPlan::Pool(cpus))),
                Err(reason) => {
                    return Err(SettingError::Value {
                        key: self.name,
                        given: format!("{text:?}"),
                        origin: origin.clone(),
                        allowed: reason,
                    });
                }
            },
        };
        let value = value.filter(|value| self.within_limits(value));
        value.ok_or_else(|| refuse(self.allowed()))
    }

    /// Checks the limits of a number; other values have none.
    #[must_use]
    pub fn within_limits(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (Kind::Number { min, max }, Value::Number(number)) => (min..=max).contains(number),
            (Kind::Bytes { min, max, unit }, Value::Number(number)) => {
                (min..=max).contains(number) && number.is_multiple_of(unit)
            }
            _ => true,
        }
    }

    /// The built-in default, if there is a fixed one.
    #[must_use]
    pub fn default_value(&self) -> Option<Value> {
        match self.fallback {
            Fallback::Number(number) => Some(Value::Number(number)),
            Fallback::Switch(switch) => Some(Value::Switch(switch)),
            Fallback::Text(text) => {
                Some(self.parse(text, &Origin::Default).expect("a test parses every default"))
            }
            Fallback::Unset { .. } => None,
        }
    }
}

fn parse_number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

/// `67108864`, `64MiB`, `64 MiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in units {
        if let Some(number) = text.strip_suffix(unit) {
            return parse_number(number.trim_end())?.checked_mul(1 << shift);
        }
    }
    parse_number(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::key::KEYS;

    fn key(name: &str) -> &'static Key {
        &KEYS[Key::index(name).unwrap()]
    }

    fn flag() -> Origin {
        Origin::Flag("x".to_owned())
    }

    #[test]
    fn every_default_is_within_its_own_limits() {
        for key in KEYS {
            let Some(value) = key.default_value() else { continue };
            assert!(key.within_limits(&value), "{}", key.name);
        }
    }

    #[test]
    fn sizes_take_binary_units() {
        let key = key("log.segment_size_bytes");
        for text in ["67108864", "67_108_864", "64MiB", "64 MiB", "65536KiB"] {
            assert_eq!(key.parse(text, &flag()), Ok(Value::Number(64 << 20)), "{text}");
        }
    }

    #[test]
    fn impossible_values_say_setting_origin_and_limits_in_one_line() {
        for (name, text, says) in [
            ("shards.count", "0", "a whole number from 1 to 512"),
            ("shards.count", "100000", "a whole number from 1 to 512"),
            ("shards.count", "-1", "a whole number"),
            ("shards.count", "", "a whole number"),
            ("log.segment_size_bytes", "64MB", "from 64 KiB to 2 GiB, a multiple of 4 KiB"),
            ("log.segment_size_bytes", "100001", "a multiple of 4 KiB"),
            ("log.segment_size_bytes", "99999999999GiB", "a number of bytes"),
            ("listen.client", "localhost", "an IP address and port"),
            ("listen.client", "1.2.3.4:99999", "an IP address and port"),
            ("listen.http", "on", "or off"),
            ("standalone", "yes", "true or false"),
            ("logging.level", "loud", "one of error, warn, info, debug, trace"),
            ("data_dir", "", "a path"),
            ("shards.cpus", "3-1", "runs backwards"),
        ] {
            let error = key(name).parse(text, &flag()).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(says), "{error}");
            assert!(error.contains("flag --x") && !error.contains('\n'), "{error}");
        }
    }
}
