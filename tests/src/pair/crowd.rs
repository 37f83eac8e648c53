//! Load on a pair, and the reckoning.

use std::time::Duration;

use duolog_net::wire::{Consistency, Copies};
use serde_json::Value as Json;

use super::cluster::Pair;
use super::status::{Role, Status};
use crate::process::{Crowd, CrowdPlan, Ledger, Stopwatch, Wire, check_streams, pause, run, until};

/// How long the pair may take to do what it must: generous, for machines with other work.
const HEAL_MAX: Duration = Duration::from_secs(40);

impl Pair {
    /// Writers that follow the leader from node to node.
    #[must_use]
    pub fn crowd(&self) -> Crowd {
        Crowd::start(self.plan())
    }

    /// What [`Pair::crowd`] does.
    #[must_use]
    pub fn plan(&self) -> CrowdPlan {
        let [one, other] = self.members.map(|number| self.options[number].address);
        CrowdPlan {
            other: Some(other),
            writers: 4,
            window: 4,
            pace: Duration::from_millis(2),
            ..CrowdPlan::new(one, u64::from(std::process::id()))
        }
    }

    /// Waits until something holds; panics with the logs' ends if it does not.
    pub fn until<T>(&self, what: &str, look: impl FnMut(&Self) -> Option<T>) -> T {
        self.until_within(HEAL_MAX, what, look)
    }

    fn until_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let watch = Stopwatch::start();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(watch.elapsed() < limit, "{what}: not within {limit:?}\n{}", self.story());
            pause(Duration::from_millis(10));
        }
    }

    /// The last lines of every node's log and their statuses: for messages of failed tests.
    #[must_use]
    pub fn story(&self) -> String {
        let mut story = String::new();
        for number in 0..self.options.len() {
            let status = self.status(number).map(|status| status.0.to_string());
            story.push_str(&format!("node {number}: {status:?}\n"));
            let log = self.log_of(number);
            for line in &log[log.len().saturating_sub(25)..] {
                story.push_str(&format!("  {line}\n"));
            }
        }
        story
    }

    /// Waits for a leader; its number.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.until("a node leads", |pair| {
            let leads = |number: &usize| {
                pair.status(*number).is_some_and(|status| status.role() == Role::Leader)
            };
            (0..pair.options.len()).find(leads)
        })
    }

    /// Waits until this node leads.
    pub fn until_leads(&self, number: usize) -> Status {
        self.until(&format!("node {number} leads"), |pair| {
            pair.status(number).filter(|status| status.role() == Role::Leader)
        })
    }

    /// The other member.
    #[must_use]
    pub fn other(&self, number: usize) -> usize {
        let [one, other] = self.members;
        if number == one { other } else { one }
    }

    /// Waits until the crowd has been told of `more` further appends.
    pub fn until_acked(&self, crowd: &Crowd, more: u64) {
        let goal = crowd.acked() + more;
        self.until(&format!("{more} more appends are acknowledged"), |_| {
            (crowd.acked() >= goal).then_some(())
        });
    }

    /// Waits until the crowd has been told of `more` further appends with these copies.
    pub fn until_acked_by(&self, crowd: &Crowd, copies: Copies, more: u64) {
        let goal = crowd.acked_by(copies) + more;
        self.until(&format!("{more} more appends are acknowledged by {copies:?}"), |_| {
            (crowd.acked_by(copies) >= goal).then_some(())
        });
    }

    /// Waits until one member leads and the other acknowledges by the wire; the leader's number.
    #[must_use]
    pub fn healed_under_load(&self) -> usize {
        self.until("the pair is whole", |pair| {
            let [one, other] = pair.members.map(|number| pair.status(number));
            let (one, other) = (one?, other?);
            let leads = |lead: &Status, follow: &Status| {
                let roles = (lead.role(), follow.role()) == (Role::Leader, Role::Follower);
                roles && lead.acks_by_peer() && lead.members().contains(&follow.node())
            };
            match () {
                () if leads(&one, &other) => Some(pair.members[0]),
                () if leads(&other, &one) => Some(pair.members[1]),
                () => None,
            }
        })
    }

    /// Waits until both members are there, one leads, the other follows, acks go by the wire, and
    /// everything is committed on both; the leader's number.
    #[must_use]
    pub fn healed(&self) -> usize {
        self.until("the pair is whole", |pair| {
            let leader = pair.members.into_iter().find(|number| {
                pair.status(*number).is_some_and(|status| status.role() == Role::Leader)
            })?;
            let (lead, follow) = (pair.status(leader)?, pair.status(pair.other(leader))?);
            let members = lead.members();
            let known = [lead.node(), follow.node()].iter().all(|node| members.contains(node));
            let ends: Vec<u64> = lead.shards().iter().map(|shard| shard.0).collect();
            let caught_up = |status: &Status| {
                let committed: Vec<u64> = status.shards().iter().map(|shard| shard.1).collect();
                committed == ends
            };
            let whole = known
                && follow.role() == Role::Follower
                && lead.acks_by_peer()
                && caught_up(&lead)
                && caught_up(&follow);
            whole.then_some(leader)
        })
    }

    /// Heals, then holds both nodes against what clients were told: each acknowledged append once
    /// and at its place, nothing refused, retries get their first answer; the same on both nodes;
    /// stopped, the logs are the same bytes.
    ///
    /// # Panics
    /// When anything differs.
    pub fn reckon(mut self, ledger: &Ledger) {
        self.settle(ledger);
    }

    /// [`Pair::reckon`], and the data directories stay.
    ///
    /// # Panics
    /// When anything differs.
    pub fn settle(&mut self, ledger: &Ledger) {
        let leader = self.healed();
        let follower = self.other(leader);
        let shards = self.shards;
        let connect = |number: usize| {
            Wire::connect(self.options[number].address).expect("the node takes clients")
        };
        let (mut leads, mut follows) = (connect(leader), connect(follower));
        ledger.check(&mut leads, shards);
        let logs: Vec<_> = (0..shards).map(|shard| leads.log(shard, 1)).collect();
        check_streams(&mut follows, &logs, Consistency::Any);
        for (shard, log) in (0..).zip(&logs) {
            let copy = follows.log_as(shard, 1, Consistency::Any);
            assert_eq!(log.len(), copy.len(), "events of shard {shard} on both nodes");
            let differs = log.iter().zip(&copy).find(|(one, other)| *one != *other);
            assert!(differs.is_none(), "the nodes differ in shard {shard}: {differs:?}");
        }
        drop((leads, follows));
        // The follower first: there is nobody to hand over to.
        self.stop(follower);
        self.stop(leader);
        self.compare_logs(true);
    }

    /// `duolog verify --compare` on the stopped members: nothing committed contradicts; if `whole`,
    /// they are equal.
    ///
    /// # Panics
    /// When they are not.
    pub fn compare_logs(&self, whole: bool) {
        let [one, other] =
            self.members.map(|number| self.options[number].dir.display().to_string());
        let compared = run(&["verify", &one, "--compare", &other, "--json"]);
        assert_eq!(compared.code, Some(0), "{compared:?}");
        let document = compared.json();
        let shards = document["shards"].as_array().expect("a list of shards");
        assert_eq!(shards.len(), self.shards as usize, "{document}");
        let equal = |shard: &Json| shard["relation"] == "equal";
        assert!(!whole || shards.iter().all(equal), "{document}");
    }

    /// Appends one event by a connection of its own and waits for the answer, however many nodes
    /// have to be asked: the pair serves.
    pub fn until_serves(&self) {
        let key = u128::from(std::process::id()) << 64 | 1;
        let operation = crate::process::Operation::single(
            key,
            "probe",
            duolog_engine::append::Expect::Any,
            b"alive",
        );
        let limit = Duration::from_secs(2);
        until(HEAL_MAX, "the pair serves", || {
            let mut answers = self.members.into_iter().filter_map(|number| {
                let address = self.options[number].address;
                let (mut wire, _) = Wire::connect_within(address, None, limit).ok()?;
                wire.try_append(&operation.request()).ok()
            });
            answers
                .any(|answer| matches!(answer, crate::process::Answer::Appended(_)))
                .then_some(())
        });
    }
}
