//! The settings `s3.*`: the bucket, the way to it, and who asks.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::Values;
use crate::settings::value::Value;

/// `s3.*`
#[derive(Clone, Debug)]
pub struct S3 {
    /// `s3.bucket`; must be there for a cluster and for `s3 probe`.
    pub bucket: Option<String>,
    /// `s3.subfolder` with a slash at its end, or nothing.
    pub subfolder: String,
    /// `s3.endpoint`; AWS without one.
    pub endpoint: Option<String>,
    /// `s3.allow_http`
    pub allow_http: bool,
    /// `s3.region`
    pub region: Option<String>,
    /// `s3.addressing`: auto, path or virtual.
    pub addressing: String,
    /// `s3.ca_file`
    pub ca_file: Option<PathBuf>,
    /// `s3.access_key_id`
    pub access_key_id: Option<String>,
    /// `s3.secret_access_key`
    pub secret_access_key: Option<String>,
    /// `s3.session_token`
    pub session_token: Option<String>,
    /// `s3.profile`
    pub profile: Option<String>,
    /// `s3.retry_max_duration_secs`; for ever without it.
    pub retry_max_duration: Option<Duration>,
}

impl S3 {
    pub(super) fn typed(values: &Values<'_>) -> Self {
        let text = |name: &str| match &values.entry(name).value {
            Some(Value::Text(text)) => Some(text.clone()),
            Some(Value::Secret(secret)) => Some(secret.0.clone()),
            _ => None,
        };
        let subfolder = text("s3.subfolder").unwrap_or_default();
        let subfolder = match subfolder.trim_matches('/') {
            "" => String::new(),
            inner => format!("{inner}/"),
        };
        let retry_max = match values.entry("s3.retry_max_duration_secs").value {
            Some(Value::Number(seconds)) => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        Self {
            bucket: text("s3.bucket"),
            subfolder,
            endpoint: text("s3.endpoint"),
            allow_http: values.switch("s3.allow_http"),
            region: text("s3.region"),
            addressing: values.text("s3.addressing"),
            ca_file: values.path("s3.ca_file"),
            access_key_id: text("s3.access_key_id"),
            secret_access_key: text("s3.secret_access_key"),
            session_token: text("s3.session_token"),
            profile: text("s3.profile"),
            retry_max_duration: retry_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::flags::SettingFlags;
    use crate::settings::key::Key;
    use crate::settings::{Settings, Surroundings, show};

    fn load(given: &[(&str, &str)]) -> Settings {
        let given = given.iter().map(|(name, text)| (Key::index(name).unwrap(), text.to_string()));
        let flags = SettingFlags { config: None, given: given.collect() };
        Settings::load(&flags, &Surroundings { env: vec![], affinity: vec![0] }).unwrap()
    }

    #[test]
    fn a_subfolder_has_one_slash_at_its_end_however_it_was_given() {
        for (given, expected) in [("a/b", "a/b/"), ("/a/b/", "a/b/"), ("/", "")] {
            assert_eq!(load(&[("s3.subfolder", given)]).s3.subfolder, expected);
        }
        assert_eq!(load(&[]).s3.subfolder, "");
    }

    #[test]
    fn secrets_are_used_and_never_shown() {
        let settings = load(&[("s3.secret_access_key", "hush"), ("s3.session_token", "hush-too")]);
        assert_eq!(settings.s3.secret_access_key.as_deref(), Some("hush"));
        let shown = format!("{}{}", show::table(&settings), show::json(&settings));
        assert!(shown.contains("(hidden)") && !shown.contains("hush"), "{shown}");
        assert!(!format!("{:?}", settings.resolved).contains("hush"));
    }
}
