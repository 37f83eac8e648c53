//! Credentials: what signs a request, and the keeper that always has some that are good.
//!
//! Promises: credentials are refreshed before they expire, and once more when the store says that
//! they have expired; a request never waits for a refresh while the old ones are still good; a
//! secret is never printed.

mod fetch;
mod profile;
mod source;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

pub use profile::ProfileError;
pub use source::{ContainerToken, Environment, Given, Source};

use crate::limits::{REFRESH_AGAIN_MS, REFRESH_AHEAD_MS};

/// What signs a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    /// Milliseconds since 1970 by the source's clock; `None` for ever.
    expires_ms: Option<i64>,
}

impl Credentials {
    /// Credentials that do not expire. Empty texts, blanks and control characters are refused,
    /// because they come from broken copies and make signatures that nobody can explain.
    pub fn fixed(
        access_key_id: &str,
        secret_access_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, CredentialsError> {
        let parts = [
            ("access key id", Some(access_key_id)),
            ("secret access key", Some(secret_access_key)),
            ("session token", session_token),
        ];
        for (part, text) in parts {
            let right =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            if text.is_some_and(|text| !right(text)) {
                return Err(CredentialsError::Text { part });
            }
        }
        Ok(Self {
            access_key_id: access_key_id.to_owned(),
            secret_access_key: secret_access_key.to_owned(),
            session_token: session_token.map(str::to_owned),
            expires_ms: None,
        })
    }

    /// The same, good until this moment, milliseconds since 1970.
    #[must_use]
    pub fn until(self, expires_ms: i64) -> Self {
        Self { expires_ms: Some(expires_ms), ..self }
    }

    /// Public part.
    #[must_use]
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    pub(crate) fn secret_access_key(&self) -> &str {
        &self.secret_access_key
    }

    /// Of temporary credentials.
    #[must_use]
    pub fn session_token(&self) -> Option<&str> {
        self.session_token.as_deref()
    }

    /// When they end, milliseconds since 1970.
    #[must_use]
    pub const fn expires_ms(&self) -> Option<i64> {
        self.expires_ms
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .field("temporary", &self.session_token.is_some())
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A part is empty or not plain text.
    #[error("the {part} is empty or has blanks or control characters: copy it again")]
    Text {
        /// Which.
        part: &'static str,
    },
    /// One half of a pair.
    #[error("{given} is set but {missing} is not: set both or none")]
    Half {
        /// Set.
        given: String,
        /// Not set.
        missing: String,
    },
    /// A profile file.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The container's endpoint is no place to ask.
    #[error(
        "{name} = {given:?} is refused: credentials are fetched over https, or over http from \
         loopback and the container metadata addresses only"
    )]
    ContainerUrl {
        /// The variable.
        name: &'static str,
        /// As given.
        given: String,
    },
    /// The container's token cannot be used.
    #[error("the container authorization token cannot be used: {reason}")]
    ContainerToken {
        /// What is wrong.
        reason: String,
    },
    /// The source did not answer, or not with credentials.
    #[error("no credentials from {source_name}: {reason}{advice}")]
    Fetch {
        /// Which.
        source_name: String,
        /// What happened.
        reason: String,
        /// What to do; starts with a separator, or is empty.
        advice: &'static str,
    },
    /// The source answered with credentials that are no longer good.
    #[error(
        "{source_name} gave credentials that expired {ago_ms} ms ago: check this machine's clock"
    )]
    Expired {
        /// Which.
        source_name: String,
        /// By how much, milliseconds.
        ago_ms: i64,
    },
}

/// Credentials in use and when to look for new ones.
#[derive(Clone, Debug)]
struct Kept {
    credentials: Credentials,
    /// From here on a refresh is due.
    refresh_ms: i64,
}

impl Kept {
    fn new(credentials: Credentials, now_ms: i64) -> Self {
        let refresh_ms = credentials.expires_ms.map_or(i64::MAX, |expires_ms| {
            // Short-lived ones are refreshed at three quarters of their life.
            let quarter_ms = expires_ms.saturating_sub(now_ms).max(0) / 4;
            expires_ms.saturating_sub(quarter_ms.min(REFRESH_AHEAD_MS))
        });
        Self { credentials, refresh_ms }
    }

    fn is_good(&self, now_ms: i64) -> bool {
        self.credentials.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// Hands out credentials and keeps them fresh. Clones share what they keep.
#[derive(Clone, Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: RwLock<Arc<Source>>,
    kept: RwLock<Option<Kept>>,
    /// Held while the source is asked: one question at a time.
    asking: tokio::sync::Mutex<()>,
}

impl Keeper {
    /// A keeper that has asked nobody yet.
    #[must_use]
    pub fn new(source: Source) -> Self {
        let asking = tokio::sync::Mutex::new(());
        let source = RwLock::new(Arc::new(source));
        Self { shared: Arc::new(Shared { source, kept: RwLock::new(None), asking }) }
    }

    /// Where its credentials come from.
    #[must_use]
    pub fn source(&self) -> Arc<Source> {
        Arc::clone(&self.shared.source.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on credentials come from `source`. It is asked first: if it has none that are good,
    /// nothing changes. Whether they are others than those in use.
    pub async fn change_source(
        &self,
        source: Source,
        now_ms: impl Fn() -> i64,
    ) -> Result<bool, CredentialsError> {
        let _asking = self.shared.asking.lock().await;
        let before = self.kept();
        let credentials = self.ask(&source, &now_ms).await?;
        *self.shared.source.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(source);
        Ok(before.is_none_or(|before| before.credentials != credentials))
    }

    /// Credentials that are good by the clock `now_ms`. Waits for the source only if there are
    /// none; must be called on a tokio runtime.
    pub async fn credentials(
        &self,
        now_ms: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Result<Credentials, CredentialsError> {
        if let Some(kept) = self.kept()
            && kept.is_good(now_ms())
        {
            if kept.refresh_ms <= now_ms() {
                let keeper = self.clone();
                tokio::spawn(async move { keeper.refresh_behind(now_ms).await });
            }
            return Ok(kept.credentials);
        }
        let _asking = self.shared.asking.lock().await;
        // Somebody else may have asked while this call waited for its turn.
        match self.kept() {
            Some(kept) if kept.is_good(now_ms()) => Ok(kept.credentials),
            _ => self.ask(&self.source(), &now_ms).await,
        }
    }

    /// New credentials in place of `expired`, which the store has refused.
    pub async fn replace(
        &self,
        expired: &Credentials,
        now_ms: impl Fn() -> i64,
    ) -> Result<Credentials, CredentialsError> {
        let _asking = self.shared.asking.lock().await;
        match self.kept() {
            Some(kept) if kept.credentials != *expired && kept.is_good(now_ms()) => {
                Ok(kept.credentials)
            }
            _ => self.ask(&self.source(), &now_ms).await,
        }
    }

    async fn refresh_behind(&self, now_ms: impl Fn() -> i64) {
        // If somebody is asking already, that will do.
        let Ok(_asking) = self.shared.asking.try_lock() else { return };
        let Some(kept) = self.kept().filter(|kept| kept.refresh_ms <= now_ms()) else { return };
        if let Err(error) = self.ask(&self.source(), &now_ms).await {
            tracing::warn!(%error, "credentials were not refreshed; the old ones stay in use");
            let refresh_ms = now_ms().saturating_add(REFRESH_AGAIN_MS);
            self.keep(Kept { refresh_ms, ..kept });
        }
    }

    async fn ask(
        &self,
        source: &Source,
        now_ms: &impl Fn() -> i64,
    ) -> Result<Credentials, CredentialsError> {
        let credentials = source.fetch().await?;
        let kept = Kept::new(credentials, now_ms());
        if !kept.is_good(now_ms()) {
            let expires_ms = kept.credentials.expires_ms.unwrap_or(i64::MAX);
            return Err(CredentialsError::Expired {
                source_name: source.to_string(),
                ago_ms: now_ms().saturating_sub(expires_ms),
            });
        }
        self.keep(kept.clone());
        Ok(kept.credentials)
    }

    fn kept(&self) -> Option<Kept> {
        self.shared.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, kept: Kept) {
        *self.shared.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }
}

#[cfg(test)]
mod tests;
