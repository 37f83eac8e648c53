//! Whether results may be compared: what differs between them apart from what was changed on
//! purpose.

use serde_json::Value;

use crate::results::Document;

/// Members of the settings that differ between any two runs and say nothing about the load.
const FREE: [&str; 2] = ["addr", "run_id"];

/// How one result differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlike {
    /// In what makes figures differ: they must not be compared.
    pub refused: Vec<String>,
    /// In what a reader should know.
    pub noted: Vec<String>,
}

/// Compares two documents; each difference as `name: one, other`.
#[must_use]
pub fn unlike(one: &Document, other: &Document) -> Unlike {
    let mut found = Unlike { refused: settings(one, other), noted: Vec::new() };
    let compare = |name: &str, values: [Option<String>; 2], list: &mut Vec<String>| {
        let [one, other] = values.map(|value| value.unwrap_or_else(|| "unknown".to_owned()));
        if one != other {
            list.push(format!("{name}: {one}, {other}"));
        }
    };
    let both = |value: &dyn Fn(&Document) -> Option<String>| [value(one), value(other)];
    let text = |text: &str| Some(text.to_owned());
    let refused = &mut found.refused;
    compare("workload", both(&|it| text(&it.report.workload)), refused);
    compare("mode", both(&|it| text(&it.report.mode)), refused);
    compare("processor", both(&|it| it.host.cpu_model.clone()), refused);
    compare("processors online", both(&|it| it.host.cpus_online.clone()), refused);
    compare("generator may use", both(&|it| text(&it.host.affinity)), refused);
    let shards = |it: &Document| it.server.as_ref().map(|server| server.shards.to_string());
    compare("shards", both(&shards), refused);
    let role = |it: &Document| it.server.as_ref().and_then(|server| server.role.clone());
    compare("role of the server", both(&role), refused);
    if one.storage.is_some() && other.storage.is_some() {
        let of = |value: fn(&crate::results::storage::Storage) -> Option<String>| {
            [one, other].map(|it| it.storage.as_ref().and_then(value))
        };
        compare("device", of(|storage| storage.device.clone()), refused);
        compare("file system", of(|storage| storage.file_system.clone()), refused);
        compare("mount options", of(|storage| storage.mount_options.clone()), &mut found.noted);
    }
    compare("machine", both(&|it| text(&it.host.name)), &mut found.noted);
    compare("kernel", both(&|it| text(&it.host.kernel)), &mut found.noted);
    compare("governor", both(&|it| it.host.governor.clone()), &mut found.noted);
    found
}

/// All settings, by their members: one that is added later counts too.
fn settings(one: &Document, other: &Document) -> Vec<String> {
    let [one, other] =
        [one, other].map(|document| match serde_json::to_value(&document.report.settings) {
            Ok(Value::Object(members)) => members,
            _ => serde_json::Map::new(),
        });
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let differing = names.filter(|name| !FREE.contains(&name.as_str()));
    let differing = differing.filter_map(|name| {
        let (first, second) = (one.get(name), other.get(name));
        let word = |value: Option<&Value>| value.map_or("none".to_owned(), Value::to_string);
        (first != second).then(|| format!("{name}: {}, {}", word(first), word(second)))
    });
    differing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example::document as example;

    /// Broken if a load of another size passes as the same, or if a new run number is held against
    /// it.
    #[test]
    fn another_load_or_machine_is_refused_and_another_kernel_noted() {
        let one = example();
        let mut other = example();
        other.report.settings.run_id = "other".to_owned();
        other.report.settings.addr = "10.0.0.1:1".to_owned();
        assert_eq!(unlike(&one, &other), Unlike::default());
        other.report.settings.connections += 1;
        other.host.cpu_model = Some("another".to_owned());
        other.host.kernel = "9.9".to_owned();
        let found = unlike(&one, &other);
        let names = |list: &[String]| -> Vec<String> {
            list.iter().map(|text| text.split(':').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&found.refused), ["connections", "processor"], "{found:?}");
        assert_eq!(names(&found.noted), ["kernel"]);
    }
}
