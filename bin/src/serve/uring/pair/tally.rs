//! Counts which shards have answered a question that all have to answer.

use duolog_engine::ids::ShardId;

/// The answers to one question. An answer to another one begins anew if it is another question.
#[derive(Debug)]
pub(super) struct Tally<Q> {
    question: Option<Q>,
    answered: Vec<bool>,
}

impl<Q: PartialEq> Tally<Q> {
    pub fn new(shards: usize) -> Self {
        Self { question: None, answered: vec![false; shards] }
    }

    /// Forgets all answers.
    pub fn clear(&mut self) {
        self.question = None;
        self.answered.fill(false);
    }

    /// Counts an answer; whether it was the last one missing.
    pub fn count(&mut self, shard: ShardId, question: Q) -> bool {
        if self.question.as_ref() != Some(&question) {
            self.clear();
            self.question = Some(question);
        }
        let Some(answered) = self.answered.get_mut(shard.0 as usize) else { return false };
        !std::mem::replace(answered, true) && self.answered.iter().all(|answered| *answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_shard_completes_a_question_once() {
        let mut tally = Tally::new(2);
        assert!(!tally.count(ShardId(1), 7));
        assert!(!tally.count(ShardId(1), 7), "a repeated answer counts once");
        assert!(!tally.count(ShardId(0), 8), "another question begins anew");
        assert!(tally.count(ShardId(1), 8));
        assert!(!tally.count(ShardId(0), 8), "complete only once");
        tally.clear();
        assert!(!tally.count(ShardId(0), 8));
    }
}
