//! Credentials over HTTP: the container endpoint and the metadata service of an instance.

use std::time::Duration;

use serde::Deserialize;

use crate::credentials::{ContainerToken, Credentials, CredentialsError, Source};
use crate::date;
use crate::limits::{CREDENTIALS_BYTES_MAX, CREDENTIALS_MS};

const TOKEN_PATH: &str = "/latest/api/token";
const TOKEN_SECONDS: &str = "21600";
const ROLE_PATH: &str = "/latest/meta-data/iam/security-credentials/";
const HOP_LIMIT: &str = "; on EC2 attach a role to the instance, and in a container raise its \
     metadata hop limit (HttpPutResponseHopLimit) to 2; elsewhere give keys or a profile \
     (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, s3.profile)";
const ATTEMPTS: u32 = 2;

/// As both services write it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

struct Asker<'a> {
    source: &'a Source,
    advice: &'static str,
    http: reqwest::Client,
}

impl<'a> Asker<'a> {
    fn new(source: &'a Source, advice: &'static str) -> Result<Self, CredentialsError> {
        let limit = Duration::from_millis(CREDENTIALS_MS);
        let builder = reqwest::Client::builder().no_proxy().http1_only().timeout(limit);
        let builder = builder.redirect(reqwest::redirect::Policy::none());
        let http = builder.build().map_err(|error| fetch_error(source, advice, &error))?;
        Ok(Self { source, advice, http })
    }

    fn fail(&self, reason: impl ToString) -> CredentialsError {
        CredentialsError::Fetch {
            source_name: self.source.to_string(),
            reason: reason.to_string(),
            advice: self.advice,
        }
    }

    /// One question, asked twice if there is no answer.
    async fn ask(
        &self,
        method: &http::Method,
        url: &str,
        header: Option<(&str, &str)>,
    ) -> Result<String, CredentialsError> {
        let mut attempt = 1;
        loop {
            let mut request = self.http.request(method.clone(), url);
            if let Some((name, value)) = header {
                request = request.header(name, value);
            }
            match self.text(request).await {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn text(&self, request: reqwest::RequestBuilder) -> Result<String, CredentialsError> {
        let fail = |error: reqwest::Error| match error.is_timeout() {
            true => self.fail(format!("no answer within {CREDENTIALS_MS} ms")),
            false => fetch_error(self.source, self.advice, &error),
        };
        let mut answer = request.send().await.map_err(fail)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(fail)? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > CREDENTIALS_BYTES_MAX {
                return Err(self.fail("the answer is too long"));
            }
        }
        match status.is_success() {
            true => String::from_utf8(body).map_err(|_| self.fail("the answer is no text")),
            false => Err(self.fail(format!("the answer was {status}"))),
        }
    }

    fn credentials(&self, text: &str) -> Result<Credentials, CredentialsError> {
        // The parser's message could repeat a part of the document, which is secret.
        let document: Document = serde_json::from_str(text)
            .map_err(|_| self.fail("the answer is no credential document"))?;
        let Document { access_key_id, secret_access_key, token, expiration } = document;
        let fixed = Credentials::fixed(&access_key_id, &secret_access_key, token.as_deref())?;
        match expiration {
            None => Ok(fixed),
            Some(text) => match date::parse_iso(&text) {
                Some(expires_ms) => Ok(fixed.until(expires_ms)),
                None => Err(self.fail(format!("the expiration {text:?} is no date"))),
            },
        }
    }
}

fn fetch_error(source: &Source, advice: &'static str, error: &reqwest::Error) -> CredentialsError {
    CredentialsError::Fetch {
        source_name: source.to_string(),
        reason: crate::transport::chain(error),
        advice,
    }
}

/// Asks the container's endpoint.
pub(super) async fn container(
    source: &Source,
    url: &str,
    token: &ContainerToken,
) -> Result<Credentials, CredentialsError> {
    let asker = Asker::new(source, "")?;
    let token = match token {
        ContainerToken::None => None,
        ContainerToken::Text(text) => Some(text.clone()),
        ContainerToken::File(path) => Some(std::fs::read_to_string(path).map_err(|error| {
            let reason = format!("{}: {error}", path.display());
            CredentialsError::ContainerToken { reason }
        })?),
    };
    let token = token.map(|token| token.trim().to_owned());
    if token.as_ref().is_some_and(|token| token.bytes().any(|byte| !(b' '..0x7f).contains(&byte))) {
        let reason = "it has characters that no header may have".to_owned();
        return Err(CredentialsError::ContainerToken { reason });
    }
    let header = token.as_deref().map(|token| ("authorization", token));
    asker.credentials(&asker.ask(&http::Method::GET, url, header).await?)
}

/// Asks the metadata service: a session token, the role's name, the role's credentials.
pub(super) async fn instance(
    source: &Source,
    endpoint: &str,
) -> Result<Credentials, CredentialsError> {
    let asker = Asker::new(source, HOP_LIMIT)?;
    let url = format!("{endpoint}{TOKEN_PATH}");
    let lifetime = Some(("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS));
    let token = asker.ask(&http::Method::PUT, &url, lifetime).await?;
    let header = Some(("x-aws-ec2-metadata-token", token.trim()));
    let url = format!("{endpoint}{ROLE_PATH}");
    let roles = asker.ask(&http::Method::GET, &url, header).await?;
    let Some(role) = roles.lines().map(str::trim).find(|role| !role.is_empty()) else {
        return Err(asker.fail("the instance has no role"));
    };
    let url = format!("{url}{}", crate::key::encode(role, crate::key::Place::Query));
    asker.credentials(&asker.ask(&http::Method::GET, &url, header).await?)
}
