//! Carrying out what a machine says.

use duolog_lease::action::Action;
use duolog_lease::event::Event;
use duolog_lease::ids::{LeaseEpoch, Token};
use duolog_lease::report::Report;

use super::super::bounds::Bounds;
use super::super::network::Message;
use super::super::store::Flight;
use super::{NAMES, Read, World};

impl World {
    /// `awaited`: the write whose outcome the machine did not know before this step.
    pub(super) fn act(
        &mut self,
        bounds: &Bounds,
        node: usize,
        awaited: Option<Token>,
        action: Action,
        events: &mut Vec<Event>,
    ) {
        match action {
            Action::ReadLease { call } => {
                self.nodes[node].read = Some(Read { call, sampled: None });
            }
            Action::WriteLease { call, write, condition, document } => {
                let document = *document;
                assert_eq!(write, document.token, "the token names the write");
                self.watch_challenge(node, write);
                let waiting = Some(call);
                let flight = Flight { node, waiting, condition, document, outcome: None };
                self.flights.push(flight);
            }
            Action::SendHeartbeat { epoch, sent, wall } => {
                self.watch_act(node, epoch, "sends a heartbeat");
                self.send(bounds, node, Message::Heartbeat { epoch, sent, wall });
            }
            Action::AckHeartbeat { epoch, sent, .. } => {
                self.watch_act(node, epoch, "acks a heartbeat");
                if let Some((_, acked)) = &mut self.nodes[node].challenge {
                    *acked = true;
                }
                self.send(bounds, node, Message::Ack { epoch, sent });
            }
            Action::Refuse { epoch, refusal, .. } => {
                self.send(bounds, node, Message::Refusal { epoch, refusal });
            }
            Action::Resign { epoch } => {
                let machine = self.nodes[node].machine.as_ref();
                if machine.is_some_and(|machine| machine.grant().is_some()) {
                    self.fail("serves although it has resigned (L11)");
                }
                self.send(bounds, node, Message::Resign { epoch });
            }
            Action::Report(report) => self.watch_report(node, awaited, &report),
            action => self.act_inside(bounds, node, action, events),
        }
    }

    /// What stays within the node: takes time on slow disks, none otherwise.
    fn act_inside(
        &mut self,
        bounds: &Bounds,
        node: usize,
        action: Action,
        events: &mut Vec<Event>,
    ) {
        match action {
            Action::PersistPromise { epoch } => {
                if epoch < self.nodes[node].disk {
                    self.fail(format!("{} lowers its promise (section 2)", NAMES[node]));
                }
                self.nodes[node].persisting = Some(epoch);
            }
            Action::Follow { epoch, .. } => {
                self.watch_act(node, epoch, "follows");
                self.nodes[node].shards = Some(epoch);
            }
            Action::StopFollowing => self.nodes[node].stopping = true,
            Action::StartPromotion { epoch, in_sync } => {
                self.watch_act(node, epoch, "promotes itself");
                self.nodes[node].promoting = Some(epoch);
                self.nodes[node].members = Some((in_sync, None));
            }
            Action::MembershipChanged { in_sync, proposal } => {
                self.nodes[node].members = Some((in_sync, proposal));
                self.nodes[node].covering = true;
            }
            Action::Drain { epoch } => self.nodes[node].draining = Some(epoch),
            _ => {}
        }
        if !bounds.slow_disks {
            self.finish_inside(node, events);
        }
    }

    fn finish_inside(&mut self, node: usize, events: &mut Vec<Event>) {
        events.extend(self.finish_persisting(node));
        events.extend(self.finish_stopping(node));
        events.extend(self.finish_covering(node));
        events.extend(self.finish_promoting(node));
        events.extend(self.finish_draining(node));
    }

    pub(super) fn finish_persisting(&mut self, node: usize) -> Option<Event> {
        let it = &mut self.nodes[node];
        let epoch = it.persisting.take()?;
        it.disk = epoch;
        Some(Event::PromisePersisted { epoch })
    }

    pub(super) fn finish_stopping(&mut self, node: usize) -> Option<Event> {
        let it = &mut self.nodes[node];
        let stopping = std::mem::take(&mut it.stopping);
        stopping.then(|| it.shards = None)?;
        Some(Event::FollowingStopped)
    }

    pub(super) fn finish_covering(&mut self, node: usize) -> Option<Event> {
        let it = &mut self.nodes[node];
        let covering = std::mem::take(&mut it.covering);
        let epoch = it.machine.as_ref()?.reign()?;
        covering.then_some(Event::ProposalCovered { epoch })
    }

    pub(super) fn finish_promoting(&mut self, node: usize) -> Option<Event> {
        let epoch = self.nodes[node].promoting.take()?;
        self.watch_open(node, epoch);
        Some(Event::PromotionFinished { epoch })
    }

    pub(super) fn finish_draining(&mut self, node: usize) -> Option<Event> {
        let epoch = self.nodes[node].draining.take()?;
        Some(Event::Drained { epoch })
    }

    fn send(&mut self, bounds: &Bounds, node: usize, message: Message) {
        self.links[node].send(message, bounds.messages_max);
    }

    fn watch_report(&mut self, node: usize, awaited: Option<Token>, report: &Report) {
        use duolog_lease::report::What;
        use duolog_lease::status::Deposed;
        let Some(version) = &self.store.version else {
            return;
        };
        let document = &version.document;
        let lost = match report.what {
            What::ChallengeLost(_) => Some(document.token) == awaited,
            What::Deposed(Deposed::LeaseLost { .. }) => {
                let run = super::run_id(node, self.nodes[node].runs);
                document.token.is_of(run) && document.epoch == report.epoch
            }
            _ => false,
        };
        if lost {
            self.fail(format!("{} takes its own lease for lost (L4)", NAMES[node]));
        }
    }

    /// Whatever a node does at an epoch, that epoch is its promise, and on disk.
    fn watch_act(&mut self, node: usize, epoch: LeaseEpoch, verb: &str) {
        let disk = self.nodes[node].disk;
        let name = NAMES[node];
        if epoch < disk {
            self.fail(format!("{name} {verb} at epoch {epoch}, below its promise (section 2)"));
        }
        if epoch > disk {
            self.fail(format!("{name} {verb} at epoch {epoch} before that is on disk (section 2)"));
        }
    }
}
