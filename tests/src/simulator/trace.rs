//! What happened, one line each on standard output, when somebody wants to read it: at once, since
//! a run may end in a panic.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Whether lines are wanted.
    pub wanted: bool,
}

impl Trace {
    /// Adds a line; `text` is made only when it is wanted.
    pub fn note(&mut self, now_us: u64, who: &str, text: impl FnOnce() -> String) {
        if self.wanted {
            let (s, us) = (now_us / 1_000_000, now_us % 1_000_000);
            println!("{s:>4}.{us:06} {who:<6} {}", text());
        }
    }
}
