//! The shared profile files (`~/.aws/credentials`, `~/.aws/config`): sections, names and values.

use std::path::{Path, PathBuf};

use crate::credentials::{Credentials, CredentialsError};

/// Why a profile gives no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No file has it.
    #[error("no profile {name:?} in {credentials_file} or {config_file}")]
    Missing {
        /// Asked for.
        name: String,
        /// Looked through.
        credentials_file: PathBuf,
        /// Looked through.
        config_file: PathBuf,
    },
    /// A file that is there cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The profile has no keys, but something that Duolog does not do.
    #[error(
        "the profile {name:?} has no aws_access_key_id and aws_secret_access_key{instead}; \
         put keys into it, or let the platform give them (container endpoint, instance role)"
    )]
    NoKeys {
        /// Its name.
        name: String,
        /// What it has instead; starts with a separator, or is empty.
        instead: String,
    },
}

/// Settings of one section.
type Section = Vec<(String, String)>;

/// The credentials of a profile.
pub(super) fn read(
    name: &str,
    credentials_file: &Path,
    config_file: &Path,
) -> Result<Credentials, CredentialsError> {
    let keys = section(&load(credentials_file)?, &[name]);
    let config_names: [&str; 2] = [&format!("profile {name}"), name];
    let config = section(&load(config_file)?, &config_names);
    if keys.is_none() && config.is_none() {
        return Err(CredentialsError::Profile(ProfileError::Missing {
            name: name.to_owned(),
            credentials_file: credentials_file.to_owned(),
            config_file: config_file.to_owned(),
        }));
    }
    let settings = [keys.unwrap_or_default(), config.unwrap_or_default()].concat();
    let get = |wanted: &str| {
        settings.iter().find(|(known, _)| known == wanted).map(|(_, value)| value.as_str())
    };
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Credentials::fixed(id, secret, get("aws_session_token")),
        _ => {
            let others = ["role_arn", "credential_process", "sso_session", "sso_start_url"];
            let instead = others.into_iter().find(|other| get(other).is_some());
            let instead = instead.map_or_else(String::new, |other| format!(", but {other}"));
            let name = name.to_owned();
            Err(CredentialsError::Profile(ProfileError::NoKeys { name, instead }))
        }
    }
}

/// The region that a profile names.
pub(super) fn region(config_file: &Path, name: &str) -> Option<String> {
    let text = load(config_file).ok()?;
    let settings = section(&text, &[&format!("profile {name}"), name])?;
    settings.into_iter().find(|(known, _)| known == "region").map(|(_, value)| value)
}

/// The text of a file; nothing if there is no file.
fn load(path: &Path) -> Result<String, ProfileError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            Err(ProfileError::Unreadable { path: path.to_owned(), reason: error.to_string() })
        }
    }
}

/// The settings below `[name]`, all sections with that name together; `None` if there is none.
fn section(text: &str, names: &[&str]) -> Option<Section> {
    let (mut found, mut inside) = (None::<Section>, false);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            let header = header.split_whitespace().collect::<Vec<_>>().join(" ");
            inside = names.contains(&header.as_str());
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            // Indented lines belong to the setting before them, and none of those matters here.
            && !indented
            && let (Some(settings), Some((key, value))) = (&mut found, line.split_once('='))
        {
            let value = value.split(" #").next().unwrap_or_default();
            settings.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(credentials: &str, config: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("credentials"), dir.path().join("config"));
        std::fs::write(&one, credentials).unwrap();
        std::fs::write(&two, config).unwrap();
        (dir, one, two)
    }

    #[test]
    fn keys_come_from_the_named_profile() {
        let credentials = "\u{feff}# mine\n[default]\naws_access_key_id=D\n\
            aws_secret_access_key=E\n\
            [ other ]\r\nAWS_ACCESS_KEY_ID = A = \r\naws_secret_access_key = S/+= # note\r\n\
            aws_session_token=T\n";
        let config = "[profile other]\nregion = eu-x\ns3 =\n  region = no\n[profile cfg]\n\
            aws_access_key_id=C\naws_secret_access_key=K\n";
        let (_dir, one, two) = files(credentials, config);
        let other = read("other", &one, &two);
        // `A =` is what stands behind the first equals sign; it has a blank and is refused.
        assert_eq!(other, Err(CredentialsError::Text { part: "access key id" }));
        let default = read("default", &one, &two).unwrap();
        assert_eq!((default.access_key_id(), default.session_token()), ("D", None));
        assert_eq!(read("cfg", &one, &two).unwrap().secret_access_key(), "K");
        assert_eq!(region(&two, "other").as_deref(), Some("eu-x"));
        assert_eq!(region(&two, "default"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_dir, one, two) = files("[a]\nrole_arn = x\n[b]\n", "");
        let missing = read("c", &one, &two).unwrap_err();
        assert!(matches!(missing, CredentialsError::Profile(ProfileError::Missing { .. })));
        let text = |name| read(name, &one, &two).unwrap_err().to_string();
        assert!(text("a").contains("but role_arn"), "{}", text("a"));
        assert!(text("b").contains("has no aws_access_key_id"), "{}", text("b"));
        let unreadable = read("a", one.parent().unwrap(), &two).unwrap_err();
        assert!(matches!(unreadable, CredentialsError::Profile(ProfileError::Unreadable { .. })));
    }
}
