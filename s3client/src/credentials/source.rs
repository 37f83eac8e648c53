//! Where credentials come from, decided once at start from what was given and the environment.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::credentials::{Credentials, CredentialsError, fetch, profile};

/// The address of the container credentials service of ECS.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// Addresses that may be asked over plain HTTP: ECS, and EKS's agent in both families.
const CONTAINER_ADDRESSES: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
/// The address of the instance metadata service.
const INSTANCE_HOST: &str = "http://169.254.169.254";

/// A source of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These, for ever.
    Fixed {
        /// They.
        credentials: Credentials,
        /// Where they were given.
        origin: &'static str,
    },
    /// A profile of the shared files, read again at each refresh.
    Profile {
        /// Its name.
        name: String,
        /// `~/.aws/credentials`
        credentials_file: PathBuf,
        /// `~/.aws/config`
        config_file: PathBuf,
    },
    /// The endpoint that a container platform offers.
    Container {
        /// Whole URL.
        url: String,
        /// For its `Authorization` header.
        token: ContainerToken,
    },
    /// Version 2 of the metadata service of an EC2 instance.
    Instance {
        /// `http://169.254.169.254`
        endpoint: String,
    },
}

/// What the container endpoint wants to see.
#[derive(Clone, PartialEq, Eq)]
pub enum ContainerToken {
    /// Nothing.
    None,
    /// This text.
    Text(String),
    /// The content of this file, read again at each refresh.
    File(PathBuf),
}

impl fmt::Debug for ContainerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// What an operator gave explicitly.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// `s3.access_key_id`
    pub access_key_id: Option<String>,
    /// `s3.secret_access_key`
    pub secret_access_key: Option<String>,
    /// `s3.session_token`
    pub session_token: Option<String>,
    /// `s3.profile`
    pub profile: Option<String>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given")
            .field("access_key_id", &self.access_key_id)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// The variables of the environment that matter, passed in.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// From pairs of name and value.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = |name: &str| name.starts_with("AWS_") || name == "HOME";
        Self { variables: variables.into_iter().filter(|(name, _)| ours(name)).collect() }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn file(&self, variable: &str, below_home: &str) -> PathBuf {
        match (self.get(variable), self.get("HOME")) {
            (Some(path), _) => PathBuf::from(path),
            (None, Some(home)) => PathBuf::from(home).join(below_home),
            (None, None) => PathBuf::from("/").join(below_home),
        }
    }

    /// The region that the environment or the profile names.
    #[must_use]
    pub fn region(&self, given: &Given) -> Option<String> {
        let named = self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION"));
        named.map(str::to_owned).or_else(|| {
            let name = given.profile.as_deref().or_else(|| self.get("AWS_PROFILE"));
            profile::region(&self.file("AWS_CONFIG_FILE", ".aws/config"), name.unwrap_or("default"))
        })
    }
}

impl Source {
    /// The first that applies: given keys, a given profile, the environment's keys, its profile or
    /// the default profile if there is one, the container's endpoint, the instance.
    pub fn choose(given: &Given, environment: &Environment) -> Result<Self, CredentialsError> {
        let names = ["s3.access_key_id", "s3.secret_access_key"];
        let keys = [&given.access_key_id, &given.secret_access_key].map(Option::as_deref);
        let token = given.session_token.as_deref();
        if let Some(credentials) = pair(names, keys, token)? {
            return Ok(Self::Fixed { credentials, origin: "the settings s3.*" });
        }
        if let Some(name) = &given.profile {
            return Ok(Self::profile(name, environment));
        }
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let keys = names.map(|name| environment.get(name));
        if let Some(credentials) = pair(names, keys, environment.get("AWS_SESSION_TOKEN"))? {
            return Ok(Self::Fixed { credentials, origin: "the environment (AWS_*)" });
        }
        if let Some(name) = environment.get("AWS_PROFILE") {
            return Ok(Self::profile(name, environment));
        }
        let default = Self::profile("default", environment);
        if let Self::Profile { name, credentials_file, config_file } = &default
            && profile::read(name, credentials_file, config_file).is_ok()
        {
            return Ok(default);
        }
        match Self::container(environment)? {
            Some(container) => Ok(container),
            None => {
                let endpoint = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
                let endpoint = endpoint.unwrap_or(INSTANCE_HOST).trim_end_matches('/').to_owned();
                Ok(Self::Instance { endpoint })
            }
        }
    }

    fn profile(name: &str, environment: &Environment) -> Self {
        Self::Profile {
            name: name.to_owned(),
            credentials_file: environment.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
            config_file: environment.file("AWS_CONFIG_FILE", ".aws/config"),
        }
    }

    fn container(environment: &Environment) -> Result<Option<Self>, CredentialsError> {
        const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
        let url = match (environment.get(RELATIVE), environment.get(FULL)) {
            (Some(path), _) if path.starts_with('/') => format!("{CONTAINER_HOST}{path}"),
            (Some(path), _) => {
                return Err(CredentialsError::ContainerUrl {
                    name: RELATIVE,
                    given: path.to_owned(),
                });
            }
            (None, Some(url)) if may_be_asked(url) => url.to_owned(),
            (None, Some(url)) => {
                return Err(CredentialsError::ContainerUrl { name: FULL, given: url.to_owned() });
            }
            (None, None) => return Ok(None),
        };
        let file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let text = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let token = match (file, text) {
            (Some(path), _) => ContainerToken::File(PathBuf::from(path)),
            (None, Some(text)) => ContainerToken::Text(text.to_owned()),
            (None, None) => ContainerToken::None,
        };
        Ok(Some(Self::Container { url, token }))
    }

    /// Asks the source.
    pub(super) async fn fetch(&self) -> Result<Credentials, CredentialsError> {
        match self {
            Self::Fixed { credentials, .. } => Ok(credentials.clone()),
            Self::Profile { name, credentials_file, config_file } => {
                profile::read(name, credentials_file, config_file)
            }
            Self::Container { url, token } => fetch::container(self, url, token).await,
            Self::Instance { endpoint } => fetch::instance(self, endpoint).await,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { origin, .. } => f.write_str(origin),
            Self::Profile { name, credentials_file, .. } => {
                write!(f, "the profile {name:?} of {}", credentials_file.display())
            }
            Self::Container { url, .. } => write!(f, "the container endpoint {url}"),
            Self::Instance { endpoint } => {
                write!(f, "the instance metadata service at {endpoint}")
            }
        }
    }
}

/// Both keys, none, or an error about the half.
fn pair(
    names: [&str; 2],
    keys: [Option<&str>; 2],
    token: Option<&str>,
) -> Result<Option<Credentials>, CredentialsError> {
    let half = |given: usize, missing: usize| CredentialsError::Half {
        given: names[given].to_owned(),
        missing: names[missing].to_owned(),
    };
    match keys {
        [Some(id), Some(secret)] => Credentials::fixed(id, secret, token).map(Some),
        [None, None] => Ok(None),
        [Some(_), None] => Err(half(0, 1)),
        [None, Some(_)] => Err(half(1, 0)),
    }
}

/// Whether a URL may be asked for credentials: encrypted, or on this machine.
fn may_be_asked(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let Some(host) = uri.host() else { return false };
    let host = host.trim_matches(['[', ']']);
    match (uri.scheme_str(), host.parse::<IpAddr>()) {
        (Some("https"), _) => true,
        (Some("http"), Ok(address)) => address.is_loopback() || CONTAINER_ADDRESSES.contains(&host),
        (Some("http"), Err(_)) => host == "localhost",
        _ => false,
    }
}
