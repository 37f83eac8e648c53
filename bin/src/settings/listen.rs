//! The settings of where clients connect, natively and by HTTP.

use std::net::SocketAddr;

use crate::settings::Values;
use crate::settings::value::{Secret, Value};

/// `listen.client`, `listen.http`, `advertise.http` and `http.token`
#[derive(Clone, Debug)]
pub struct Listen {
    /// `listen.client`
    pub client: SocketAddr,
    /// `listen.http`; none if it is off.
    pub http: Option<SocketAddr>,
    /// `advertise.http`, else nothing: then what `listen.http` got.
    pub advertise_http: Option<String>,
    /// `http.token`
    pub token: Option<Secret>,
}

impl Listen {
    pub(super) fn typed(values: &Values<'_>) -> Self {
        let http = match values.entry("listen.http").value {
            Some(Value::Address(address)) => Some(address),
            _ => None,
        };
        let advertise_http = match &values.entry("advertise.http").value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let token = match &values.entry("http.token").value {
            Some(Value::Secret(secret)) => Some(secret.clone()),
            _ => None,
        };
        Self { client: values.address("listen.client"), http, advertise_http, token }
    }

    /// Where clients of either kind connect, by the names of the settings.
    pub fn ports(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let http = self.http.map(|address| ("listen.http", address));
        [("listen.client", self.client)].into_iter().chain(http)
    }

    /// Why HTTP is open to others than this machine without asking who they are, if it is.
    #[must_use]
    pub fn exposure(&self) -> Option<String> {
        let address = self.http.filter(|address| !address.ip().is_loopback())?;
        self.token.is_none().then(|| {
            format!(
                "HTTP on {address} (listen.http) is open to other machines, and whoever reaches it \
                 may read and append"
            )
        })
    }

    /// What to do about [`Listen::exposure`].
    pub const EXPOSURE_REMEDY: &str =
        "set http.token (DUOLOG_HTTP_TOKEN), or listen.http to an address of the loopback";
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
    fn http_listens_on_the_loopback_unless_it_is_off() {
        assert_eq!(load(&[]).listen.http, Some("127.0.0.1:7402".parse().unwrap()));
        for off in ["off", ""] {
            let settings = load(&[("listen.http", off)]);
            assert_eq!(settings.listen.http, None);
            let table = show::table(&settings);
            let line = table.lines().find(|line| line.contains("listen.http")).unwrap();
            assert_eq!(line.split_whitespace().nth(1), Some("off"), "{line}");
        }
    }

    #[test]
    fn only_a_port_for_others_without_a_token_is_exposed() {
        let exposed = |given: &[(&str, &str)]| load(given).listen.exposure().is_some();
        assert!(exposed(&[("listen.http", "0.0.0.0:7402")]));
        assert!(exposed(&[("listen.http", "[::]:7402")]));
        assert!(!exposed(&[("listen.http", "0.0.0.0:7402"), ("http.token", "hush")]));
        assert!(!exposed(&[("listen.http", "127.0.0.7:7402")]));
        assert!(!exposed(&[("listen.http", "off")]));
    }

    #[test]
    fn the_token_is_used_and_never_shown() {
        let settings = load(&[("http.token", "hush")]);
        assert_eq!(settings.listen.token.as_ref().map(|token| &*token.0), Some("hush"));
        let shown = format!("{}{}", show::table(&settings), show::json(&settings));
        assert!(!shown.contains("hush"), "{shown}");
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
