//! Threads that no byte waits for step back behind those that move bytes, and rest between pieces of their work.
//!
//! On a machine whose cores are all busy, a thread that parses for milliseconds would else be in the way of
//! every chunk that comes in the meantime. A low priority alone does not help there: of two threads that move
//! bytes and share a core, the kernel takes one to another core when that one falls idle, and a core on which
//! somebody parses never does.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

use crate::clock::Clock;

/// Of 99. On Linux it is niceness 5, with which a thread still gets a quarter of a core that one other wants
/// whole: enough that its queue does not run over.
const PRIORITY: u8 = 35;

/// So long a thread that may rest works in one go at first, and a quarter longer each time: a rest costs some
/// microseconds of processor time, and long work shall not become much longer by its rests.
const FIRST_SPELL_NS: i64 = 20_000;
/// So long it rests.
const REST: Duration = Duration::from_micros(100);

/// Work that goes on without a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spell {
    began_ns: i64,
    at_most_ns: i64,
}

thread_local! {
    /// No time of day is asked of it.
    static CLOCK: Clock = Clock::anchored_at(0);
    /// Of the calling thread; none while it must not rest.
    static SPELL: Cell<Option<Spell>> = const { Cell::new(None) };
}

/// Says at the start of some work whether the calling thread may rest between its pieces: whether it keeps up.
pub(crate) fn may_rest(may: bool) {
    SPELL.set(may.then(|| Spell { began_ns: now_ns(), at_most_ns: FIRST_SPELL_NS }));
}

/// Between two pieces of work: rests where the thread may and has worked for a while.
pub(crate) fn rest() {
    if let Some(Spell { began_ns, at_most_ns }) = SPELL.get()
        && now_ns() - began_ns >= at_most_ns
    {
        thread::sleep(REST);
        SPELL.set(Some(Spell { began_ns: now_ns(), at_most_ns: at_most_ns + at_most_ns / 4 }));
    }
}

fn now_ns() -> i64 {
    CLOCK.with(Clock::now_ns)
}

/// Lowers the priority of the calling thread for good, out of a real-time class too. A system that refuses
/// loses nothing but this.
pub(crate) fn yield_to_others() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
    if let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) {
        let priority = ThreadPriority::Crossplatform(priority);
        let _ = set_thread_priority_and_policy(thread_native_id(), priority, policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_where_it_may_and_has_worked_for_a_while() {
        rest();
        assert_eq!(SPELL.get(), None, "nobody said that it may");
        may_rest(true);
        let first = SPELL.get().unwrap();
        assert_eq!(first.at_most_ns, 20_000);
        while now_ns() - first.began_ns < first.at_most_ns {
            std::hint::spin_loop();
        }
        rest();
        let second = SPELL.get().unwrap();
        assert!(second.began_ns >= first.began_ns + 20_000 + REST.as_nanos() as i64);
        assert_eq!(second.at_most_ns, 25_000);
        let later = Spell { began_ns: now_ns() + 60_000_000_000, ..second };
        SPELL.set(Some(later));
        rest();
        assert_eq!(SPELL.get(), Some(later), "it has hardly begun");
        may_rest(false);
        rest();
        assert_eq!(SPELL.get(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_calling_thread_steps_back() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let lowered = std::thread::spawn(move || {
            yield_to_others();
            niceness()
        });
        let lowered = lowered.join().unwrap();
        assert!(lowered == 5 || before > 5, "{before} to {lowered}");
        assert_eq!(niceness(), before);
    }
}
