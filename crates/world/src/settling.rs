//! When built-in controllers have their turns.

/// The most turns at one time. Controllers whose writes are refused, which others write about, would have one after the
/// other for ever; in a cluster they back off.
const MOST_AT_ONCE: u32 = 200;
/// The first pause after so many turns, in milliseconds; each further one is twice as long.
const FIRST_PAUSE: u64 = 1_000;
const LONGEST_PAUSE: u64 = 64_000;

/// The turns of built-in controllers: whenever something was written since the last one.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// The revision that they have seen.
    seen: u64,
    /// The time of the last turn, and how many they had then.
    at: u64,
    turns: u32,
    pause: u64,
    /// The end of their pause.
    again: Option<u64>,
}

impl Settling {
    /// Whether they have a turn now.
    pub(crate) fn is_due(&mut self, revision: u64, now: u64) -> bool {
        if revision == self.seen || self.again.is_some_and(|again| again > now) {
            return false;
        }
        if self.at != now {
            if self.again.take().is_none() {
                self.pause = 0;
            }
            (self.at, self.turns) = (now, 0);
        }
        self.turns += 1;
        if self.turns > MOST_AT_ONCE {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.again = Some(now + self.pause);
            return false;
        }
        true
    }

    /// They had a turn.
    pub(crate) fn had(&mut self, revision: u64) {
        self.seen = revision;
    }

    /// The end of their pause, if they pause.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_that_are_refused_again_and_again_pause_longer_and_longer() {
        let mut settling = Settling::default();
        let mut revision = 0;
        let mut burst = |now: u64| {
            for turn in 0..1_000 {
                revision += 1;
                if !settling.is_due(revision, now) {
                    return (turn, settling.next_time());
                }
                settling.had(revision);
            }
            (1_000, None)
        };
        assert_eq!(burst(5), (200, Some(1_005)));
        assert_eq!(burst(900), (0, Some(1_005)));
        assert_eq!(burst(1_005), (200, Some(3_005)));
        assert_eq!(burst(3_005), (200, Some(7_005)));
    }
}
