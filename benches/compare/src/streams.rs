//! The streams of one system: the same names for every system, chosen uniformly, each with at most
//! one append in flight, and what the server last said about each.

/// Streams of every system, made before anything is measured.
pub const STREAM_COUNT: u32 = 10_000;

/// What is known of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It has no event yet.
    Empty,
    /// The version that its last receipt named: a revision, a version or a position.
    At(u64),
    /// An append to it was never answered: what comes next cannot be known.
    Lost,
}

/// See the module's text. Lives as long as the system's data.
#[derive(Debug)]
pub struct Streams {
    known: Vec<Known>,
    in_flight: Vec<bool>,
    mixer: Mixer,
    next_to_fill: u32,
}

impl Streams {
    /// Streams without events.
    #[must_use]
    pub fn new(count: u32, seed: u64) -> Self {
        let count = count as usize;
        Self {
            known: vec![Known::Empty; count],
            in_flight: vec![false; count],
            mixer: Mixer(seed),
            next_to_fill: 0,
        }
    }

    /// The next stream of the filling, each once. `None` when all have had their turn.
    pub fn next_to_fill(&mut self) -> Option<u32> {
        let stream = self.next_to_fill;
        let flying = self.in_flight.get_mut(stream as usize)?;
        *flying = true;
        self.next_to_fill += 1;
        Some(stream)
    }

    /// Chooses a stream that has nothing in flight. `None` if there is hardly one.
    pub fn choose(&mut self) -> Option<u32> {
        // Few are in flight or lost, so that two draws nearly always do.
        for _ in 0..1000 {
            let stream = self.mixer.below(self.known.len() as u32);
            let place = stream as usize;
            if !self.in_flight[place] && self.known[place] != Known::Lost {
                self.in_flight[place] = true;
                return Some(stream);
            }
        }
        None
    }

    /// The version to expect of a stream; `None`: it has no event.
    #[must_use]
    pub fn expected(&self, stream: u32) -> Option<u64> {
        match self.known[stream as usize] {
            Known::At(version) => Some(version),
            Known::Empty | Known::Lost => None,
        }
    }

    /// The append was acknowledged with this version.
    pub fn acknowledged(&mut self, stream: u32, version: u64) {
        self.known[stream as usize] = Known::At(version);
        self.in_flight[stream as usize] = false;
    }

    /// The append was refused: nothing changed.
    pub fn refused(&mut self, stream: u32) {
        self.in_flight[stream as usize] = false;
    }

    /// The append got no answer. The stream is chosen no more.
    pub fn unanswered(&mut self, stream: u32) {
        self.known[stream as usize] = Known::Lost;
        self.in_flight[stream as usize] = false;
    }

    /// How many streams have an event for certain.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.known.iter().filter(|known| matches!(known, Known::At(_))).count()
    }
}

/// Well-mixed numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Mixer(pub u64);

impl Mixer {
    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (((self.next_number() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filling names each stream once, and a stream in flight is not chosen. Broken if one is
    /// left out, named twice or chosen while its append is out.
    #[test]
    fn streams_are_filled_once_and_have_one_append_in_flight() {
        let mut streams = Streams::new(8, 7);
        let filled: Vec<u32> = std::iter::from_fn(|| streams.next_to_fill()).collect();
        assert_eq!(filled, (0..8).collect::<Vec<_>>());
        assert_eq!(streams.choose(), None, "all are in flight");
        filled.iter().for_each(|stream| streams.acknowledged(*stream, 0));
        let mut chosen: Vec<u32> = std::iter::from_fn(|| streams.choose()).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, filled);
    }

    /// What is expected is what the last receipt said; a stream whose append was lost is not used
    /// again. Broken if a refusal moves the expectation, or if a lost stream is chosen.
    #[test]
    fn expectations_follow_receipts_and_lost_streams_are_left_alone() {
        let mut streams = Streams::new(2, 7);
        assert_eq!(streams.expected(0), None);
        streams.acknowledged(0, 4);
        streams.refused(0);
        assert_eq!(streams.expected(0), Some(4));
        streams.unanswered(1);
        assert_eq!(streams.filled(), 1);
        for _ in 0..20 {
            assert_eq!(streams.choose(), Some(0));
            streams.refused(0);
        }
    }
}
