//! What of a node's life is worth a line in its event log, and how long each part of it took. All
//! durations are between two readings of this node's clock within one run.

use duolog_engine::ids::{MonoUs, Now};
use duolog_lease::report::{Cause, Report, What};
use duolog_lease::status::Deposed;
use serde_json::json;

use crate::journal::Note;

/// See the module.
#[derive(Debug, Default)]
pub struct Chronicle {
    quest: Quest,
    role: Option<&'static str>,
    /// Appends are admitted, until this moment at the latest.
    admits_until: Option<MonoUs>,
    /// Appends have been waiting since.
    paused: Option<MonoUs>,
    acks_go_to: Option<&'static str>,
    store_answers: Option<bool>,
    /// The reign whose first append has not come yet: it leads since, and began to try at.
    fresh: Option<(u64, MonoUs, MonoUs)>,
    /// The other node's wall clock less this one's, ms.
    skew_ms: Option<i64>,
}

/// From the last sign of a leader to the own lead.
#[derive(Clone, Copy, Debug, Default)]
struct Quest {
    /// The newest heartbeat or resignation, with the wall clock.
    heard: Option<Now>,
    /// The first look at the lease object since then.
    looked: Option<MonoUs>,
    challenged: Option<MonoUs>,
    /// The first attempt to write the challenge left.
    sent: Option<MonoUs>,
    attempts: u64,
    won: Option<MonoUs>,
    promotes: Option<MonoUs>,
    slowest: PromotionTimes,
}

/// How long parts of one shard's promotion took, us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromotionTimes {
    /// Putting Seals into old chains.
    pub seal_us: u64,
    /// Putting its own Open.
    pub open_us: u64,
    /// Objects that were read.
    pub objects: u64,
}

/// How the store answered a call about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// It said what is there, or whether it was written.
    Clear,
    /// It did not answer, or not usefully.
    None,
}

/// What the node is at a moment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The word for it.
    pub role: &'static str,
    /// The same as a sentence.
    pub status: &'a str,
    /// Its reign.
    pub epoch: u64,
    /// Appends are admitted, until this moment at the latest.
    pub admits_until: Option<MonoUs>,
    /// As leader: where the second copies go.
    pub acks_go_to: Option<&'static str>,
    /// Why something changed last.
    pub reason: Option<&'a str>,
}

const fn between(from: MonoUs, to: MonoUs) -> u64 {
    to.0.saturating_sub(from.0)
}

impl Chronicle {
    /// A leader that this node follows showed a sign of life.
    pub fn heard(&mut self, now: Now) {
        self.quest = Quest { heard: Some(now), ..Quest::default() };
    }

    /// The other node's wall clock was read: less this one's, ms.
    pub fn skew(&mut self, skew_ms: i64) {
        self.skew_ms = Some(skew_ms);
    }

    /// The newest reading of it.
    #[must_use]
    pub const fn skew_ms(&self) -> Option<i64> {
        self.skew_ms
    }

    /// The lease object is about to be read.
    pub fn looks(&mut self, now: Now) {
        self.quest.looked.get_or_insert(now.mono);
    }

    /// The lease object is about to be written.
    pub fn writes(&mut self, now: Now) {
        self.quest.sent.get_or_insert(now.mono);
        self.quest.attempts += 1;
    }

    /// The store has answered about the lease, or not: a change of that is worth a line.
    pub fn answered(&mut self, answer: StoreAnswer) -> Option<Note> {
        let clear = answer == StoreAnswer::Clear;
        let before = self.store_answers.replace(clear);
        (before.unwrap_or(true) != clear)
            .then(|| Note::new(if clear { "store_reachable" } else { "store_unreachable" }))
    }

    /// The shards begin to promote themselves.
    pub fn promotes(&mut self, now: Now) {
        self.quest.promotes = Some(now.mono);
        self.quest.slowest = PromotionTimes::default();
    }

    /// A shard has promoted itself; the last one to say so was the slowest.
    pub fn promoted(&mut self, times: PromotionTimes) {
        self.quest.slowest = times;
    }

    /// The lease machine's report.
    pub fn report(&mut self, now: Now, report: &Report) -> Note {
        let epoch = report.epoch.0;
        let note = Note::new(report.what.name()).at_epoch(epoch).because(report.what.to_string());
        let note = with_facts(note, &report.what);
        match &report.what {
            What::Challenges(_) => {
                let Quest { heard, looked, .. } = self.quest;
                self.quest.challenged = Some(now.mono);
                (self.quest.sent, self.quest.attempts) = (None, 0);
                let note = note.with("heard_ms", heard.map(|heard| heard.wall.0));
                let silent = heard.map(|heard| between(heard.mono, now.mono));
                let looked = looked.map(|looked| between(looked, now.mono));
                note.with("silent_us", silent).with("looked_before_us", looked)
            }
            What::ReignWon => {
                self.quest.won = Some(now.mono);
                let took = self.quest.sent.map(|sent| between(sent, now.mono));
                note.with("write_us", took).with("attempts", self.quest.attempts)
            }
            What::Leads => {
                let began = self.quest.began().unwrap_or(now.mono);
                self.fresh = Some((epoch, now.mono, began));
                let phases = self.quest.phases(now.mono);
                let note = note.with("took_us", between(began, now.mono)).with("phases", phases);
                note.with("objects", self.quest.slowest.objects)
            }
            _ => note,
        }
    }

    /// A shard of this reign has admitted an append; told once for the whole node.
    pub fn appended(&mut self, now: Now, epoch: u64) -> Option<Note> {
        let (_, leads, began) = self.fresh.take_if(|fresh| fresh.0 == epoch)?;
        let note = Note::new("first_append").at_epoch(epoch);
        let note = note.with("after_us", between(leads, now.mono));
        Some(note.with("paused_us", between(began, now.mono)))
    }

    /// The process did not run for a while longer than it had asked for.
    #[must_use]
    pub fn stalled(&self, late_us: u64) -> Note {
        let reason = "this process did not run: it was stopped, or its machine was";
        Note::new("stalled").because(reason).with("for_us", late_us)
    }

    /// Looks at what the node is now; whatever has changed is worth a line.
    pub fn look(&mut self, now: Now, view: &View<'_>) -> Vec<Note> {
        let mut notes = Vec::new();
        let before = self.role.replace(view.role);
        if before != Some(view.role) {
            let note = Note::new("role").at_epoch(view.epoch).because(view.status);
            notes.push(note.with("from", before).with("to", view.role));
        }
        notes.extend(self.look_at_admission(now, view));
        let before = std::mem::replace(&mut self.acks_go_to, view.acks_go_to);
        if before != view.acks_go_to
            && let Some(to) = view.acks_go_to
        {
            let note = Note::new("acks_go_to").at_epoch(view.epoch);
            notes.push(note.with("from", before).with("to", to));
        }
        notes
    }

    fn look_at_admission(&mut self, now: Now, view: &View<'_>) -> Option<Note> {
        let before = std::mem::replace(&mut self.admits_until, view.admits_until);
        match (before, view.admits_until) {
            (Some(until), None) => {
                let since = until.min(now.mono);
                self.paused = Some(since);
                let note = Note::new("appends_paused").at_epoch(view.epoch);
                let note = note.because(view.reason.unwrap_or(view.status));
                Some(note.with("since_us", since.0))
            }
            (None, Some(_)) => {
                let since = self.paused.take()?;
                let note = Note::new("appends_resumed").at_epoch(view.epoch);
                Some(note.with("paused_us", between(since, now.mono)))
            }
            _ => {
                // Whoever follows has nothing to resume.
                if view.role == "follower" {
                    self.paused = None;
                }
                None
            }
        }
    }
}

impl Quest {
    fn began(&self) -> Option<MonoUs> {
        let heard = self.heard.map(|heard| heard.mono);
        heard.or(self.looked).or(self.challenged).or(self.promotes)
    }

    /// What each phase took; they follow one another without a gap, so their sum is the time from
    /// the beginning to `leads`. A phase that cannot be told apart is part of the next.
    fn phases(&self, leads: MonoUs) -> serde_json::Value {
        let PromotionTimes { seal_us, open_us, .. } = self.slowest;
        let moments = [
            ("detect", self.looked),
            ("wait", self.challenged),
            ("stop", self.sent),
            ("write", self.won),
            ("promise", self.promotes),
        ];
        let Some(mut from) = self.began() else { return json!([]) };
        let mut phases = Vec::new();
        for (name, moment) in moments {
            let Some(to) = moment.filter(|to| *to > from) else { continue };
            phases.push(json!({ "phase": name, "us": between(from, to) }));
            from = to;
        }
        let promotion = between(from, leads);
        let read_us = promotion.saturating_sub(seal_us + open_us);
        for (name, us) in [("read", read_us), ("seal", seal_us), ("open", open_us)] {
            phases.push(json!({ "phase": name, "us": us }));
        }
        phases.into()
    }
}

/// The values in a report, by name.
fn with_facts(note: Note, what: &What) -> Note {
    let id = ToString::to_string;
    match what {
        What::Follows(node)
        | What::ChallengeLost(node)
        | What::ChallengeOverwritten(node)
        | What::TwoLeaders(node) => note.with("peer", node.to_string()),
        What::Challenges(cause) => note.with("cause", cause_word(*cause)),
        What::Deposed(deposed) => {
            let (why, seen) = deposed_words(*deposed);
            note.with("why", why).with("seen", seen)
        }
        What::ClockDrift { other, difference_ms } => {
            note.with("peer", other.to_string()).with("difference_ms", *difference_ms)
        }
        What::ClockSkew { difference_ms } => note.with("difference_ms", *difference_ms),
        What::MembersProposed(set) | What::MembersChanged(set) => {
            note.with("in_sync", set.members().map(|node| id(&node)).collect::<Vec<_>>())
        }
        What::MemberRefused { node, .. } => note.with("peer", node.to_string()),
        _ => note,
    }
}

const fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::NoLease => "no_lease",
        Cause::Expired => "expired",
        Cause::OwnLease => "own_lease",
        Cause::Resigned => "resigned",
    }
}

const fn deposed_words(deposed: Deposed) -> (&'static str, Option<u64>) {
    match deposed {
        Deposed::HigherEpoch { seen } => ("higher_epoch", Some(seen.0)),
        Deposed::LeaseLost { found } => ("lease_lost", Some(found.0)),
        Deposed::LeaseVanished => ("lease_vanished", None),
        Deposed::ChainSealed => ("chain_sealed", None),
        Deposed::FatalGap => ("gap", None),
        Deposed::NewReign => ("new_reign", None),
        Deposed::Unanswered => ("unanswered", None),
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::{LeaseEpoch, WallMs};

    use super::*;

    fn at(us: u64) -> Now {
        Now { mono: MonoUs(us), wall: WallMs(1_000_000 + us / 1000) }
    }

    fn report(what: What) -> Report {
        Report { epoch: LeaseEpoch(5), what }
    }

    /// A failover with moments of its own: phases follow one another, and their sum is the whole.
    #[test]
    fn the_phases_of_a_failover_add_up() {
        let mut chronicle = Chronicle::default();
        chronicle.heard(at(50));
        chronicle.heard(at(1000));
        chronicle.looks(at(2500));
        chronicle.looks(at(2600));
        let note = chronicle.report(at(4000), &report(What::Challenges(Cause::Expired)));
        assert_eq!(note.facts["cause"], "expired");
        assert_eq!(
            (&note.facts["silent_us"], &note.facts["looked_before_us"]),
            (&json!(3000), &json!(1500))
        );
        chronicle.writes(at(4100));
        chronicle.writes(at(4200));
        let note = chronicle.report(at(4600), &report(What::ReignWon));
        assert_eq!((&note.facts["write_us"], &note.facts["attempts"]), (&json!(500), &json!(2)));
        chronicle.promotes(at(4700));
        chronicle.promoted(PromotionTimes { seal_us: 100, open_us: 200, objects: 3 });
        let note = chronicle.report(at(5200), &report(What::Leads));
        let phases: Vec<(&str, u64)> = note.facts["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| (p["phase"].as_str().unwrap(), p["us"].as_u64().unwrap()))
            .collect();
        let expected = [
            ("detect", 1500),
            ("wait", 1500),
            ("stop", 100),
            ("write", 500),
            ("promise", 100),
            ("read", 200),
            ("seal", 100),
            ("open", 200),
        ];
        assert_eq!(phases, expected);
        assert_eq!(note.facts["took_us"], phases.iter().map(|phase| phase.1).sum::<u64>());
        assert_eq!(chronicle.appended(at(5300), 4), None, "another reign's");
        let note = chronicle.appended(at(5300), 5).unwrap();
        assert_eq!(
            (&note.facts["after_us"], &note.facts["paused_us"]),
            (&json!(100), &json!(4300))
        );
        assert_eq!(chronicle.appended(at(5400), 5), None, "told once");
    }

    #[test]
    fn appends_pause_when_the_grant_ends_and_not_when_somebody_looks() {
        let mut chronicle = Chronicle::default();
        let view = |role, until: Option<u64>| View {
            role,
            status: "s",
            epoch: 3,
            admits_until: until.map(MonoUs),
            acks_go_to: None,
            reason: Some("why"),
        };
        let first = chronicle.look(at(10), &view("leader", Some(1000)));
        assert_eq!((first.len(), first[0].event), (1, "role"));
        assert!(chronicle.look(at(500), &view("leader", Some(1500))).is_empty());
        // It slept past the end of its grant.
        let notes = chronicle.look(at(9000), &view("fenced", None));
        assert_eq!((notes[0].event, notes[1].event), ("role", "appends_paused"));
        assert_eq!(notes[1].facts["since_us"], 1500);
        assert_eq!(notes[1].reason.as_deref(), Some("why"));
        let notes = chronicle.look(at(9500), &view("leader", Some(12_000)));
        assert_eq!(notes[1].facts["paused_us"], 8000);
        // A leader that ends as a follower resumes nothing when it leads again.
        chronicle.look(at(10_000), &view("fenced", None));
        chronicle.look(at(10_100), &view("follower", None));
        let notes = chronicle.look(at(20_000), &view("leader", Some(30_000)));
        assert_eq!(notes.len(), 1, "{notes:?}");
    }

    #[test]
    fn acks_and_the_store_are_told_when_they_change() {
        let mut chronicle = Chronicle::default();
        let view = |acks_go_to| View {
            role: "leader",
            status: "",
            epoch: 1,
            admits_until: None,
            acks_go_to,
            reason: None,
        };
        let words = |notes: &[Note]| {
            notes
                .iter()
                .filter(|note| note.event == "acks_go_to")
                .map(|note| note.facts["to"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&chronicle.look(at(1), &view(Some("s3")))), ["s3"]);
        assert!(words(&chronicle.look(at(2), &view(Some("s3")))).is_empty());
        assert_eq!(words(&chronicle.look(at(3), &view(Some("peer")))), ["peer"]);
        assert!(words(&chronicle.look(at(4), &view(None))).is_empty(), "it leads no more");
        assert_eq!(chronicle.answered(StoreAnswer::Clear), None);
        assert_eq!(chronicle.answered(StoreAnswer::None).unwrap().event, "store_unreachable");
        assert_eq!(chronicle.answered(StoreAnswer::None), None);
        assert_eq!(chronicle.answered(StoreAnswer::Clear).unwrap().event, "store_reachable");
    }
}
