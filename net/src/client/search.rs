//! Finding a node to talk to: the one that leads, or any.
//!
//! A round tries every address that is known or told of during it, each once, so that nodes that
//! name each other lead nowhere else than to the end of the round. A node that answers and does not
//! lead is kept: it says by itself when that changes ([`crate::wire::Standing`]), so that a client
//! needs no polling to hear of a new leader.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::chance::random_index;
use super::dial::{Link, dial, with_port};
use super::error::Error;
use super::nodes::Nodes;
use crate::limits::{CONNECT_STAGGER_MS, REDIRECTS_MAX, STANDBY_MS_MAX};

/// Which node a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The one that takes appends.
    Leader,
    /// Any that answers.
    Anyone,
    /// The one address given, whatever its node is.
    This,
}

/// Why a round found nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// No address answers.
    Unreachable(Error),
    /// Somebody answers, and nobody leads.
    NoLeader(String),
    /// A connection has ended.
    Ended(String),
}

/// Looks for a node again and again.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) nodes: Nodes,
    pub(super) aim: Aim,
    /// The address given to begin with.
    next: usize,
    /// A node that answers and does not lead, and when it was greeted.
    standby: Option<Link>,
    standby_since: Instant,
}

/// What one round has come to.
#[derive(Debug, Default)]
struct Round {
    waiting: VecDeque<String>,
    tried: Vec<String>,
    redirects: usize,
    /// Says that it leads, and another node knows of a newer reign.
    stale: Option<Link>,
    failures: Vec<(String, Error)>,
}

type Dialled = Result<(String, Result<Link, Error>), JoinError>;

impl Search {
    pub(super) fn new(nodes: Nodes, aim: Aim) -> Self {
        // Readers who take any node spread over the nodes.
        let next = match aim {
            Aim::Leader | Aim::This => 0,
            Aim::Anyone => random_index(nodes.addresses.len()),
        };
        Self { nodes, aim, next, standby: None, standby_since: Instant::now() }
    }

    /// The node that was found and does not lead; it is not watched any more.
    pub(super) const fn take_standby(&mut self) -> Option<Link> {
        self.standby.take()
    }

    /// The next round begins behind this address.
    pub(super) fn leave(&mut self, address: &str) {
        let place = self.nodes.addresses.iter().position(|known| known == address);
        self.next = place.map_or(self.next, |index| index + 1);
    }

    /// Whether there is another address than this to go to.
    pub(super) fn leads_away_from(&self, address: &str) -> bool {
        self.aim != Aim::This && self.nodes.has_other(address)
    }

    /// One round. Ends with the first connection that serves the aim.
    pub(super) async fn round(&mut self) -> Result<Link, Down> {
        let mut round = Round {
            waiting: self.nodes.candidates(self.next, self.aim).into(),
            ..Round::default()
        };
        if self.standby_since.elapsed() >= Duration::from_millis(STANDBY_MS_MAX) {
            self.standby = None;
        }
        if let Some(standby) = &self.standby {
            round.tried.push(with_port(&standby.info.address));
        }
        let mut dials: JoinSet<(String, Result<Link, Error>)> = JoinSet::new();
        let mut next_at = Instant::now();
        loop {
            if (dials.is_empty() || Instant::now() >= next_at)
                && let Some(address) = round.next()
            {
                let (shard, timeout) = (self.nodes.shard, self.nodes.timeout);
                dials.spawn(async move {
                    let link = dial(&address, shard, timeout).await;
                    (address, link)
                });
                next_at = Instant::now() + Duration::from_millis(CONNECT_STAGGER_MS);
            }
            if dials.is_empty() {
                return self.end_of(round);
            }
            tokio::select! {
                dialled = dials.join_next() => {
                    let Some(dialled) = dialled else { continue };
                    if let Some(link) = self.judge(dialled, &mut round) {
                        return Ok(link);
                    }
                    // A redirect is followed at once.
                    next_at = Instant::now();
                }
                link = news(&mut self.standby, &self.nodes, self.aim) => return Ok(link),
                () = sleep_until(next_at), if !round.waiting.is_empty() => {}
            }
        }
    }

    /// Waits between two rounds; ends early with a connection when the node that is kept leads, or
    /// without one when it names a leader.
    pub(super) async fn pause(&mut self, pause: Duration) -> Option<Link> {
        let mut known = self.nodes.watch();
        known.mark_unchanged();
        tokio::select! {
            link = news(&mut self.standby, &self.nodes, self.aim) => Some(link),
            _ = known.changed() => None,
            () = tokio::time::sleep(pause) => None,
        }
    }

    fn judge(&mut self, dialled: Dialled, round: &mut Round) -> Option<Link> {
        // A dial is never cancelled and does not panic.
        let (address, outcome) = dialled.ok()?;
        let link = match outcome.and_then(|link| self.nodes.greeted(&link.info).map(|()| link)) {
            Ok(link) => link,
            Err(error) => {
                round.failures.push((address, error));
                return None;
            }
        };
        if self.aim != Aim::Leader {
            return Some(link);
        }
        let newest = self.nodes.known().epoch;
        if link.info.role.serves() && link.info.epoch >= newest {
            return Some(link);
        }
        round.redirect(&link.info.leader);
        if link.info.role.serves() {
            round.stale = Some(link);
        } else {
            let better = |kept: &Link| kept.info.epoch <= link.info.epoch;
            if self.standby.as_ref().is_none_or(better) {
                self.standby = Some(link);
                self.standby_since = Instant::now();
            }
        }
        None
    }

    fn end_of(&self, round: Round) -> Result<Link, Down> {
        if let Some(link) = round.stale {
            // Nobody better answers: the server knows best whether it leads.
            return Ok(link);
        }
        if let Some(standby) = &self.standby {
            let info = &standby.info;
            let mut text = format!("{} answers and does not lead", info.address);
            if !info.leader.is_empty() && with_port(&info.leader) != with_port(&info.address) {
                text = format!("{text}, {} should", info.leader);
            }
            for (address, error) in &round.failures {
                text = format!("{text}; {address}: {}", error.inner_text());
            }
            return Err(Down::NoLeader(text));
        }
        Err(Down::Unreachable(all_failed(&self.nodes, round.failures)))
    }
}

impl Round {
    /// The next address that was not tried.
    fn next(&mut self) -> Option<String> {
        while let Some(address) = self.waiting.pop_front() {
            let whole = with_port(&address);
            if !self.tried.contains(&whole) {
                self.tried.push(whole);
                return Some(address);
            }
        }
        None
    }

    /// A node says that another one leads.
    fn redirect(&mut self, leader: &str) {
        if !leader.is_empty() && self.redirects < REDIRECTS_MAX {
            self.redirects += 1;
            self.waiting.push_front(leader.to_owned());
        }
    }
}

/// Waits until the node that is kept serves the aim. A node that is gone is not kept.
async fn news(standby: &mut Option<Link>, nodes: &Nodes, aim: Aim) -> Link {
    while let Some(link) = standby {
        if link.next_standing().await.is_err() {
            *standby = None;
            break;
        }
        nodes.learn(link.info.epoch, &link.info.leader);
        let serves = link.info.role.serves() && link.info.epoch >= nodes.known().epoch;
        if (serves || aim != Aim::Leader)
            && let Some(link) = standby.take()
        {
            return link;
        }
    }
    pending().await
}

/// No address answers as it should: the worst reason wins, else all are named.
fn all_failed(nodes: &Nodes, mut failures: Vec<(String, Error)>) -> Error {
    let unreachable = |error: &Error| matches!(error, Error::Connect { .. });
    if let Some(index) = failures.iter().position(|(_, error)| !unreachable(error)) {
        return failures.swap_remove(index).1;
    }
    let text = match &failures[..] {
        [] => "no address was given".to_owned(),
        [(_, error)] => error.inner_text(),
        several => {
            let each =
                several.iter().map(|(address, error)| format!("{address}: {}", error.inner_text()));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Error::Connect { addresses: nodes.addresses.join(","), text }
}
