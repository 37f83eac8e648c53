//! SIGHUP: reads the settings again and goes on with what can be changed while events are served.
//! All or nothing: what cannot be read or used leaves everything as it was.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use duolog_s3client::Client;
use duolog_s3client::credentials::Source;
use tokio::signal::unix::Signal;
use tracing::level_filters::LevelFilter;

use super::supervisor::{Event, Herald};
use crate::exit::{Exit, Failure};
use crate::logging::Log;
use crate::s3;
use crate::settings::flags::SettingFlags;
use crate::settings::reload::{Change, take_over};
use crate::settings::value::Value;
use crate::settings::{Resolved, Settings, Surroundings};

/// How long the source of new credentials may take to answer.
const SOURCE_MAX: Duration = Duration::from_secs(10);

/// What a reload needs.
#[derive(Debug)]
pub struct Reload {
    flags: SettingFlags,
    running: Vec<Resolved>,
    log: Log,
}

impl Reload {
    /// Of a server that was started with `flags` and runs with `settings`.
    #[must_use]
    pub fn new(flags: SettingFlags, settings: &Settings, log: Log) -> Self {
        Self { flags, running: settings.resolved.clone(), log }
    }

    /// Reloads at every signal. `client` is the node's way to the bucket, if it has one.
    pub async fn attend(
        mut self,
        mut hangup: Signal,
        client: Option<Client>,
        herald: &RefCell<Herald>,
    ) -> Infallible {
        while hangup.recv().await.is_some() {
            tracing::info!(event = "reloading", signal = "SIGHUP");
            herald.borrow_mut().reloading();
            let result = self.reload(client.as_ref()).await.map_err(|failure| {
                for line in failure.text.lines() {
                    tracing::error!(event = "reload_refused", reason = line, "nothing is changed");
                }
                failure.text
            });
            herald.borrow_mut().tell(Event::Reloaded(result));
        }
        // Signals end only with the runtime.
        std::future::pending().await
    }

    async fn reload(&mut self, client: Option<&Client>) -> Result<(), Failure> {
        let (flags, with_source) = (self.flags.clone(), client.is_some());
        // Files may lie on a disk that hangs; calls about the lease must not wait for it.
        let read = tokio::task::spawn_blocking(move || read(&flags, with_source)).await;
        let (settings, source) = read.map_err(|error| Failure::new(Exit::Internal, error))??;
        if let (Some(client), Some(source)) = (client, source) {
            change_source(client, source).await?;
        }
        self.take_over(&settings);
        Ok(())
    }

    fn take_over(&mut self, settings: &Settings) {
        let running = level(&self.running);
        let changes = take_over(&mut self.running, &settings.resolved);
        let logging = &settings.logging;
        let quieter = level(&self.running) < running;
        // What has changed is told under the more talkative of both levels.
        if !quieter {
            self.log.change(&logging.level, &logging.format);
        }
        changes.iter().for_each(report);
        let applied = changes.iter().filter(|change| change.key.is_reloadable()).count();
        let need_restart = changes.len() - applied;
        tracing::info!(event = "reloaded", applied, need_restart);
        if quieter {
            self.log.change(&logging.level, &logging.format);
        }
    }
}

fn read(flags: &SettingFlags, with_source: bool) -> Result<(Settings, Option<Source>), Failure> {
    let settings = Settings::load(flags, &Surroundings::of_this_process())?;
    let source = with_source.then(|| s3::source(&settings.s3)).transpose()?;
    Ok((settings, source))
}

/// The source is asked even if no setting has changed: a profile's file may have other keys now.
async fn change_source(client: &Client, source: Source) -> Result<(), Failure> {
    let name = source.to_string();
    let changed = tokio::time::timeout(SOURCE_MAX, client.change_source(source)).await;
    let late = |_| {
        let text = format!("no credentials from {name}: no answer within {SOURCE_MAX:?}");
        Failure::new(Exit::Unreachable, text)
    };
    if changed.map_err(late)?.map_err(|error| s3::failure(&error))? {
        tracing::info!(event = "credentials_changed", source = name);
    }
    Ok(())
}

fn level(resolved: &[Resolved]) -> Option<LevelFilter> {
    let level = resolved.iter().find(|resolved| resolved.key.name == "logging.level")?;
    level.value.as_ref()?.to_string().parse().ok()
}

fn report(change: &Change) {
    let show = |value: &Option<Value>| value.as_ref().map_or("unset".to_owned(), Value::to_string);
    let (setting, from, to) = (change.key.name, show(&change.from), show(&change.to));
    let origin = change.origin.to_string();
    if change.key.is_reloadable() {
        tracing::info!(event = "setting_applied", setting, from, to, origin);
    } else {
        let advice = "it counts from the next start on";
        tracing::warn!(event = "setting_needs_restart", setting, from, to, origin, advice);
    }
}
