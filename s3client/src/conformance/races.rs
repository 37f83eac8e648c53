//! Many writers at once, and one whose body is slow.

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::answer::Written;
use crate::client::Client;
use crate::clock;
use crate::conformance::slow_body::SlowBody;
use crate::conformance::{Finding, Suite, describe_end};
use crate::error::Error;
use crate::key::ObjectKey;
use crate::request::Condition;

/// Size of the body that is slow: more than a server reads together with the headers.
const SLOW_BYTES: usize = 128 << 10;

/// One writer's end.
struct End {
    writer: usize,
    written: Result<Written, Error>,
}

impl Suite<'_> {
    pub(super) async fn check_create_race(&mut self) {
        let began = clock::now();
        let finding = self.races("create-race", false).await;
        self.note(
            "create race",
            "two nodes would both believe that they hold the first lease",
            began,
            finding,
        );
    }

    pub(super) async fn check_swap_race(&mut self) {
        let began = clock::now();
        let finding = self.races("swap-race", true).await;
        self.note(
            "replace race",
            "two nodes would both believe that they won the election",
            began,
            finding,
        );
    }

    async fn races(&self, name: &str, swap: bool) -> Result<Finding, Error> {
        let (writers, rounds) = (self.plan.writers, self.plan.rounds);
        let mut doubts = 0;
        for round in 0..rounds {
            let key = self.key(&format!("{name}-{round}"))?;
            let condition = match swap {
                true => Condition::Matches(self.seed(&key).await?.1),
                false => Condition::Absent,
            };
            let bodies: Vec<Bytes> = (0..writers).map(|writer| self.body(writer)).collect();
            let ends = self.race(&key, &bodies, &condition).await;
            doubts += ends.iter().filter(|end| is_doubt(&end.written)).count();
            if let Some(complaint) = self.judge(&key, &bodies, &ends).await? {
                return Ok(Finding::fail(format!(
                    "round {round} of {writers} writers: {complaint}"
                )));
            }
        }
        let doubts = match doubts {
            0 => String::new(),
            count => format!(" ({count} answers left it open and were settled by reading)"),
        };
        Ok(Finding::pass(format!("{rounds} rounds of {writers} writers: one winner each{doubts}")))
    }

    async fn race(&self, key: &ObjectKey, bodies: &[Bytes], condition: &Condition) -> Vec<End> {
        let start = std::sync::Arc::new(tokio::sync::Barrier::new(bodies.len()));
        let mut tasks = JoinSet::new();
        for (writer, body) in bodies.iter().cloned().enumerate() {
            let (client, start) = (self.client(writer).clone(), std::sync::Arc::clone(&start));
            let (key, condition) = (key.clone(), condition.clone());
            tasks.spawn(async move {
                start.wait().await;
                let written = client.put_if(&key, body, &condition).await;
                End { writer, written }
            });
        }
        let mut ends = Vec::with_capacity(bodies.len());
        while let Some(end) = tasks.join_next().await {
            ends.extend(end.ok());
        }
        ends
    }

    /// What is wrong with a race's end: exactly one writer may have won, and the object is its.
    async fn judge(
        &self,
        key: &ObjectKey,
        bodies: &[Bytes],
        ends: &[End],
    ) -> Result<Option<String>, Error> {
        let stored = |end: &&End| matches!(end.written, Ok(Written::Stored { .. }));
        let winners: Vec<usize> = ends.iter().filter(stored).map(|end| end.writer).collect();
        let object = self.content(key).await?;
        let owner = object.and_then(|object| bodies.iter().position(|body| *body == object.body));
        Ok(match (&winners[..], owner) {
            ([one], Some(owner)) if *one == owner => None,
            ([one], owner) => Some(format!("writer {one} won, but the object is {owner:?}'s")),
            // The winner's answer may be among those that left it open.
            ([], Some(owner)) => {
                let end = ends.iter().find(|end| end.writer == owner);
                let open = end.is_some_and(|end| is_doubt(&end.written));
                let said = end.map(|end| describe_end(&end.written)).unwrap_or_default();
                (!open).then(|| format!("the object is writer {owner}'s, who was told: {said}"))
            }
            ([], None) => {
                let said = ends.first().map(|end| describe_end(&end.written)).unwrap_or_default();
                Some(format!("nobody won; the first answer: {said}"))
            }
            (many, _) => Some(format!("{} winners", many.len())),
        })
    }

    pub(super) async fn check_slow_create(&mut self) {
        let began = clock::now();
        let finding = self.slow_create().await;
        self.note(
            "create with a slow body",
            "a write that was under way for long would replace the lease of the one who won",
            began,
            finding,
        );
    }

    async fn slow_create(&self) -> Result<Finding, Error> {
        self.interleave(&self.key("slow-create")?, &Condition::Absent).await
    }

    pub(super) async fn check_slow_swap(&mut self) {
        let began = clock::now();
        let finding = self.slow_swap().await;
        self.note(
            "replace with a slow body",
            "a write that was under way for long would replace the lease of the one who won",
            began,
            finding,
        );
    }

    async fn slow_swap(&self) -> Result<Finding, Error> {
        let key = self.key("slow-swap")?;
        let (_, etag) = self.seed(&key).await?;
        self.interleave(&key, &Condition::Matches(etag)).await
    }

    /// One writer begins, another begins and ends, then the first one goes on.
    async fn interleave(&self, key: &ObjectKey, condition: &Condition) -> Result<Finding, Error> {
        let mut long = vec![b'.'; SLOW_BYTES];
        let own = self.body(0);
        long[..own.len()].copy_from_slice(&own);
        let bodies = [Bytes::from(long), self.body(1)];
        let (slow, handle) = SlowBody::new(&bodies[0]);
        let first: Client = self.client(0).clone();
        let (task_key, task_condition, body) = (key.clone(), condition.clone(), bodies[0].clone());
        let first = tokio::spawn(async move {
            first.put_if_in_parts(&task_key, body, slow, &task_condition).await
        });
        let _ = handle.started.await;
        // The first half is with the server by now, or on its way.
        clock::pause(self.plan.slow).await;
        let second = self.write(self.client(1), key, &bodies[1], condition).await;
        let _ = handle.go_on.send(());
        let first = first.await.unwrap_or_else(|error| {
            let reason = error.to_string();
            Ok(Written::Unknown(crate::answer::Doubt::NoAnswer(reason)))
        });
        let ends = [End { writer: 0, written: first }, End { writer: 1, written: second }];
        let said = |end: &End| describe_end(&end.written);
        let found = format!("slow writer: {}; fast writer: {}", said(&ends[0]), said(&ends[1]));
        Ok(match self.judge(key, &bodies, &ends).await? {
            None => Finding::pass(found),
            Some(complaint) => Finding::fail(format!("{complaint}; {found}")),
        })
    }
}

/// Neither stored nor refused: 409 and lost answers.
fn is_doubt(written: &Result<Written, Error>) -> bool {
    !matches!(written, Ok(Written::Stored { .. } | Written::Conflict))
}
