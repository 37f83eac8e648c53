//! How soon after an overload a light load is served as it was before: pure arithmetic over the
//! time line of the light load that follows it.

/// What counts as served as before: p99 of a slot at most twice that of the light load before the
/// overload, or half a millisecond above it. A slot has a hundredth of the requests that the p99 of
/// a whole run comes from, so it is not held to the microsecond.
const AS_BEFORE_FACTOR: f64 = 2.0;
const AS_BEFORE_ROOM_US: f64 = 500.0;
/// Of the slots from the recovered one on, so many must be as before.
const AS_BEFORE_SHARE: f64 = 0.9;

/// A tenth of a second of the light load, or what is nearest to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Its end, since the light load began, ms.
    pub end_ms: f64,
    /// p99 of its answers, us; `None` without answers.
    pub p99_us: Option<f64>,
    /// Refused and lost.
    pub errors: u64,
}

/// The light load behind an overload.
#[derive(Clone, Debug, PartialEq)]
pub struct Aftermath {
    /// Between the end of the overload and the beginning of the slots, ms.
    pub gap_ms: f64,
    /// In order.
    pub slots: Vec<Slot>,
}

/// Time from the end of the overload until the light load is served as before, ms: to the end of
/// the first slot which is, and after which nine of ten are. `None`: not within the slots.
#[must_use]
pub fn recovery_ms(after: &Aftermath, light_p99_us: f64) -> Option<f64> {
    let Aftermath { gap_ms, slots } = after;
    let bound_us = (light_p99_us * AS_BEFORE_FACTOR).max(light_p99_us + AS_BEFORE_ROOM_US);
    let is_good = |slot: &Slot| slot.errors == 0 && slot.p99_us.is_some_and(|us| us <= bound_us);
    let mut good = slots.iter().filter(|slot| is_good(slot)).count();
    for (passed, slot) in slots.iter().enumerate() {
        let rest = slots.len() - passed;
        if is_good(slot) && good as f64 >= rest as f64 * AS_BEFORE_SHARE {
            return Some(gap_ms + slot.end_ms);
        }
        good -= usize::from(is_good(slot));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery_ms(slots: &[Slot], light_p99_us: f64, gap_ms: f64) -> Option<f64> {
        super::recovery_ms(&Aftermath { gap_ms, slots: slots.to_vec() }, light_p99_us)
    }

    fn slots(p99s_us: impl IntoIterator<Item = Option<f64>>) -> Vec<Slot> {
        let numbered = (1..).zip(p99s_us);
        let slot = |(number, p99_us)| Slot { end_ms: f64::from(number) * 100.0, p99_us, errors: 0 };
        numbered.map(slot).collect()
    }

    /// Slow slots in the beginning are counted with the gap before them, a late straggler among
    /// good ones is not taken for the end of the recovery.
    #[test]
    fn recovery_lasts_to_the_first_slot_that_stays_good() {
        let slow = [Some(9e5), None, Some(1300.0)];
        let mut all = slots(slow.into_iter().chain([Some(500.0); 40]));
        assert_eq!(recovery_ms(&all, 400.0, 30.0), Some(430.0));
        all[20].p99_us = Some(5000.0);
        assert_eq!(recovery_ms(&all, 400.0, 30.0), Some(430.0));
        all[3].errors = 1;
        assert_eq!(recovery_ms(&all, 400.0, 30.0), Some(530.0));
    }

    /// One good slot among slow ones is luck. Broken if a server that stays slow has recovered.
    #[test]
    fn a_server_that_stays_slow_has_not_recovered() {
        let all = slots((0..40).map(|number| Some(if number % 2 == 0 { 300.0 } else { 9000.0 })));
        assert_eq!(recovery_ms(&all[..39], 400.0, 0.0), Some(3900.0), "the last slot is good");
        let all = slots([Some(300.0), Some(9000.0), Some(9000.0)]);
        assert_eq!(recovery_ms(&all, 400.0, 0.0), None);
        assert_eq!(recovery_ms(&[], 400.0, 0.0), None);
    }

    /// With a light load in the hundreds of milliseconds twice that is as before.
    #[test]
    fn a_slow_server_is_held_to_its_own_latency() {
        assert_eq!(recovery_ms(&slots([Some(190_000.0)]), 100_000.0, 1.0), Some(101.0));
        assert_eq!(recovery_ms(&slots([Some(210_000.0)]), 100_000.0, 1.0), None);
    }
}
