//! The file layer: a TOML document becomes settings with their line numbers.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::cpus::{self, CpuPlan};
use crate::settings::key::{KEYS, Key, Kind};
use crate::settings::value::{Origin, SettingError, Value};

/// What a file says: settings by their place in [`KEYS`], and everything that is wrong.
#[derive(Debug, Default)]
pub struct FileLayer {
    /// Index in [`KEYS`], value, origin.
    pub values: Vec<(usize, Value, Origin)>,
    /// Unknown keys, impossible values.
    pub errors: Vec<SettingError>,
}

/// Reads and checks the file at `path`.
#[must_use]
pub fn read(path: &Path) -> FileLayer {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) => FileLayer {
            errors: vec![SettingError::Unreadable {
                path: path.to_owned(),
                reason: error.to_string(),
            }],
            ..FileLayer::default()
        },
    }
}

/// Checks `text`, the contents of `path`.
#[must_use]
pub fn parse(path: &Path, text: &str) -> FileLayer {
    let mut reader = Reader { path, text, layer: FileLayer::default() };
    match DeTable::parse(text) {
        Ok(table) => reader.table("", table.get_ref()),
        Err(error) => {
            let line = reader.line(error.span().map_or(0, |span| span.start));
            let reason = error.message().replace('\n', " ");
            reader.layer.errors.push(SettingError::NotToml { path: path.to_owned(), line, reason });
        }
    }
    reader.layer
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    layer: FileLayer,
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        // The parser sorts by name; people read errors from top to bottom.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = match prefix {
                "" => key.get_ref().to_string(),
                prefix => format!("{prefix}.{}", key.get_ref()),
            };
            let line = self.line(key.span().start);
            self.entry(&name, line, value);
        }
    }

    fn entry(&mut self, name: &str, line: usize, value: &Spanned<DeValue<'_>>) {
        if let Some(index) = Key::index(name) {
            let origin = Origin::File { path: self.path.to_owned(), line };
            match self.value(&KEYS[index], value.get_ref(), &origin) {
                Ok(value) => self.layer.values.push((index, value, origin)),
                Err(error) => self.layer.errors.push(error),
            }
            return;
        }
        let section = format!("{name}.");
        match value.get_ref() {
            DeValue::Table(table) if KEYS.iter().any(|key| key.name.starts_with(&section)) => {
                self.table(name, table);
            }
            // An unknown section is reported by its keys: they show what was meant.
            DeValue::Table(table) if !table.is_empty() => self.table(name, table),
            _ => self.layer.errors.push(SettingError::UnknownKey {
                path: PathBuf::from(self.path),
                line,
                name: name.to_owned(),
                nearest: nearest(name),
            }),
        }
    }

    fn value(
        &self,
        key: &'static Key,
        value: &DeValue<'_>,
        origin: &Origin,
    ) -> Result<Value, SettingError> {
        let refuse = |given: String, allowed: String| SettingError::Value {
            key: key.name,
            given,
            origin: origin.clone(),
            allowed,
        };
        match (key.kind, value) {
            (Kind::Switch, DeValue::Boolean(switch)) => Ok(Value::Switch(*switch)),
            (Kind::Number { .. } | Kind::Bytes { .. }, DeValue::Integer(number)) => {
                u64::from_str_radix(number.as_str(), number.radix())
                    .ok()
                    .map(Value::Number)
                    .filter(|value| key.within_limits(value))
                    .ok_or_else(|| {
                        refuse(number.to_string(), format!("allowed is {}", key.allowed()))
                    })
            }
            (Kind::Cpus, DeValue::Array(entries)) => {
                let entries = entries.iter().map(|entry| cpu_entry(entry.get_ref()));
                let entries = entries.collect::<Result<Vec<_>, _>>();
                let entries = entries.map_err(|reason| refuse("an array".to_owned(), reason))?;
                Ok(Value::Cpus(CpuPlan::PerShard(entries)))
            }
            (Kind::Number { .. } | Kind::Switch, _)
            | (_, DeValue::Array(_) | DeValue::Table(_)) => {
                let given = format!("a {}", value.type_str());
                Err(refuse(given, format!("allowed is {}", key.allowed())))
            }
            (_, DeValue::String(text)) => key.parse(text, origin),
            (_, DeValue::Integer(number)) => key.parse(number.as_str(), origin),
            _ => {
                let given = format!("a {}", value.type_str());
                Err(refuse(given, format!("allowed is {}", key.allowed())))
            }
        }
    }
}

fn cpu_entry(value: &DeValue<'_>) -> Result<Vec<usize>, String> {
    match value {
        DeValue::String(text) => cpus::parse_list(text),
        DeValue::Integer(number) => cpus::parse_list(number.as_str()),
        other => Err(format!("an entry is a CPU or a list of CPUs, not a {}", other.type_str())),
    }
}

/// The known key most similar to `name`.
#[must_use]
pub fn nearest(name: &str) -> &'static str {
    let last = name.rsplit('.').next().unwrap_or(name);
    let score = |known: &str| {
        let known_last = known.rsplit('.').next().unwrap_or(known);
        // A right word in the wrong section is nearly always what was meant.
        let alike = strsim::normalized_damerau_levenshtein(last, known_last);
        strsim::normalized_damerau_levenshtein(name, known).max(alike * 0.95)
    };
    let best = KEYS.iter().max_by(|a, b| score(a.name).total_cmp(&score(b.name)));
    best.expect("the table of keys is not empty").name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> FileLayer {
        parse(Path::new("duolog.toml"), text)
    }

    fn errors(text: &str) -> Vec<String> {
        parse_text(text).errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_know_their_line_in_sections_and_dotted() {
        let layer = parse_text("standalone = true\n\n[shards]\ncount = 0x4\ncpus = [2, \"3-4\"]\n");
        assert!(layer.errors.is_empty(), "{:?}", layer.errors);
        let found: Vec<_> = layer
            .values
            .iter()
            .map(|(index, value, origin)| {
                (KEYS[*index].name, value.to_string(), origin.to_string())
            })
            .collect();
        let expected = [
            ("standalone", "true", "duolog.toml:1"),
            ("shards.count", "4", "duolog.toml:4"),
            ("shards.cpus", "[\"2\", \"3-4\"]", "duolog.toml:5"),
        ];
        let expected = expected.map(|(key, value, line)| (key, value.to_owned(), line.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(parse_text("shards.count = 4").values.len(), 1);
    }

    #[test]
    fn an_unknown_key_names_its_line_and_the_nearest_known_one() {
        for (text, says) in [
            (
                "shards.cuont = 3",
                "duolog.toml:1: unknown setting shards.cuont: did you mean shards.count?",
            ),
            (
                "\n[shard]\ncount = 3",
                "duolog.toml:3: unknown setting shard.count: did you mean shards.count?",
            ),
            ("datadir = \"x\"", "did you mean data_dir?"),
            (
                "[log]\nlevel = \"info\"",
                "duolog.toml:2: unknown setting log.level: did you mean logging.level?",
            ),
            ("[zzz]", "unknown setting zzz"),
        ] {
            let errors = errors(text);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].contains(says), "{errors:?}");
        }
    }

    #[test]
    fn wrong_types_and_values_are_all_reported_with_their_lines() {
        let text = "standalone = \"yes\"\ndata_dir = 7.5\n[shards]\ncount = 0\ncpus = [true]\n\
                    [limits]\nevent_max_bytes = -4\nshard_in_flight = \"9\"\n";
        let errors = errors(text);
        assert_eq!(errors.len(), 6, "{errors:?}");
        for (error, line) in errors.iter().zip([1, 2, 4, 5, 7, 8]) {
            assert!(error.contains(&format!("duolog.toml:{line}")), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn broken_toml_is_one_line_with_its_place() {
        let errors = errors("standalone = true\nlisten = [\n");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("not valid TOML") && !errors[0].contains('\n'), "{errors:?}");
    }
}
