//! Prints settings: `config show` (each value and where it came from) and `config default` (a
//! commented file that, read back, gives the defaults).

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::settings::cpus::CpuPlan;
use crate::settings::key::{Fallback, KEYS, Key, Kind, write_bytes};
use crate::settings::value::{Origin, Secret, Value};
use crate::settings::{Resolved, Settings};

/// The table for people.
#[must_use]
pub fn table(settings: &Settings) -> String {
    let rows: Vec<[String; 4]> = settings
        .resolved
        .iter()
        .map(|resolved| {
            let reload = if resolved.key.is_reloadable() { "SIGHUP" } else { "" };
            let (name, origin) = (resolved.key.name.to_owned(), resolved.origin.to_string());
            [name, for_people(resolved), origin, reload.to_owned()]
        })
        .collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second, third) = (width(0), width(1), width(2));
    let mut out = String::new();
    for [key, value, origin, reload] in &rows {
        let line = format!("{key:first$}  {value:second$}  {origin:third$}  {reload}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn for_people(resolved: &Resolved) -> String {
    match (&resolved.value, resolved.key.kind, resolved.key.fallback) {
        (Some(Value::Number(number)), Kind::Bytes { .. }, _) => match write_bytes(*number) {
            written if written == number.to_string() => written,
            written => format!("{number} ({written})"),
        },
        (Some(value), ..) => value.to_string(),
        (None, _, Fallback::Unset { means, .. }) => format!("- ({means})"),
        (None, ..) => "-".to_owned(),
    }
}

/// The same for machines.
#[must_use]
pub fn json(settings: &Settings) -> Json {
    let entries = settings.resolved.iter().map(|resolved| {
        json!({
            "key": resolved.key.name,
            "value": resolved.value.as_ref().map(value_json),
            "from": origin_json(&resolved.origin),
            "reloadable": resolved.key.is_reloadable(),
        })
    });
    json!({ "settings": entries.collect::<Vec<_>>() })
}

/// A value for machines; a secret is hidden.
#[must_use]
pub fn value_json(value: &Value) -> Json {
    match value {
        Value::Switch(switch) => json!(switch),
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Secret(_) => json!(Secret::SHOWN),
        Value::Path(path) => json!(path.display().to_string()),
        Value::Address(address) => json!(address.to_string()),
        Value::Off => json!("off"),
        Value::Cpus(CpuPlan::Pool(cpus)) => json!(cpus),
        Value::Cpus(CpuPlan::PerShard(entries)) => json!(entries),
    }
}

fn origin_json(origin: &Origin) -> Json {
    match origin {
        Origin::Flag(name) => json!({ "kind": "flag", "name": format!("--{name}") }),
        Origin::Env(name) => json!({ "kind": "env", "name": name }),
        Origin::File { path, line } => {
            json!({ "kind": "file", "path": path.display().to_string(), "line": line })
        }
        Origin::Default => json!({ "kind": "default" }),
    }
}

/// A `duolog.toml` with every key, its meaning, what is allowed, and its default.
#[must_use]
pub fn default_file() -> String {
    let mut out = String::from(
        "# Settings of one Duolog node. A flag (--shards-count) beats an environment\n\
         # variable (DUOLOG_SHARDS_COUNT), which beats this file, which beats the default.\n\
         # The values below are the defaults; a key without a fixed default is shown as a\n\
         # comment with an example.\n",
    );
    let mut section = "";
    for key in KEYS {
        let (key_section, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if key_section != section {
            section = key_section;
            let _ = write!(out, "\n[{section}]\n");
        } else {
            out.push('\n');
        }
        for line in wrap(key.doc, 97) {
            let _ = writeln!(out, "# {line}");
        }
        for line in wrap(&format!("Allowed: {}.", key.allowed()), 97) {
            let _ = writeln!(out, "# {line}");
        }
        if key.is_reloadable() {
            let _ = writeln!(out, "# A running server takes a new value over on SIGHUP.");
        }
        match default_toml(key) {
            Ok(value) => {
                let _ = writeln!(out, "{name} = {value}");
            }
            Err((means, example)) => {
                for line in wrap(&format!("Without it: {means}."), 97) {
                    let _ = writeln!(out, "# {line}");
                }
                let _ = writeln!(out, "#{name} = {example}");
            }
        }
    }
    out
}

fn default_toml(key: &Key) -> Result<String, (&'static str, &'static str)> {
    match key.fallback {
        Fallback::Number(number) => match key.kind {
            Kind::Bytes { .. } => Ok(format!("{number} # {}", write_bytes(number))),
            _ => Ok(number.to_string()),
        },
        Fallback::Text(text) => Ok(format!("{text:?}")),
        Fallback::Switch(switch) => Ok(switch.to_string()),
        Fallback::Unset { means, example } => Err((means, example)),
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a last line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Surroundings;
    use crate::settings::file;
    use crate::settings::flags::SettingFlags;
    use std::path::Path;

    /// The printed file, read back, says exactly the fixed defaults and nothing else.
    #[test]
    fn default_file_reads_back_as_the_defaults() {
        let text = default_file();
        let layer = file::parse(Path::new("duolog.toml"), &text);
        assert!(layer.errors.is_empty(), "{:?}", layer.errors);
        let mut said: Vec<_> =
            layer.values.into_iter().map(|(index, value, _)| (index, value)).collect();
        said.sort_by_key(|(index, _)| *index);
        let fixed: Vec<_> = KEYS
            .iter()
            .enumerate()
            .filter_map(|(index, key)| Some((index, key.default_value()?)))
            .collect();
        assert_eq!(said, fixed);
    }

    /// The examples in comments work when the comment sign is taken away.
    #[test]
    fn commented_examples_are_valid() {
        let text: String = default_file()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let layer = file::parse(Path::new("duolog.toml"), &text);
        assert!(layer.errors.is_empty(), "{:?}", layer.errors);
        assert_eq!(layer.values.len(), KEYS.len());
    }

    #[test]
    fn show_tells_value_and_origin_of_every_key() {
        let around = Surroundings {
            env: vec![("DUOLOG_STANDALONE".to_owned(), Some("true".to_owned()))],
            affinity: vec![0, 1],
        };
        let index = Key::index("shards.cpus").unwrap();
        let flags = SettingFlags { config: None, given: vec![(index, "0-1".to_owned())] };
        let settings = Settings::load(&flags, &around).unwrap();
        let table = table(&settings);
        assert_eq!(table.lines().count(), KEYS.len());
        assert!(table.contains("environment DUOLOG_STANDALONE"), "{table}");
        assert!(table.contains("67108864 (64 MiB)"), "{table}");
        let json = json(&settings);
        let entries = json["settings"].as_array().unwrap();
        assert_eq!(entries.len(), KEYS.len());
        let cpus = &entries[index];
        assert_eq!(cpus["value"], json!([0, 1]));
        assert_eq!(cpus["from"], json!({ "kind": "flag", "name": "--shards-cpus" }));
    }
}
