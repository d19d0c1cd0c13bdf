//! Threads that no byte waits for step back behind those that move bytes.
//!
//! On a machine whose cores are all busy, a thread that parses for milliseconds would else be in the way of
//! every chunk that comes in the meantime.

use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// Of 99. On Linux it is niceness 5, with which a thread still gets a quarter of a core that one other wants
/// whole: enough that its queue does not run over.
const PRIORITY: u8 = 35;

/// Lowers the priority of the calling thread for good, out of a real-time class too. A system that refuses
/// loses nothing but this.
pub(crate) fn yield_to_others() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
    if let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) {
        let priority = ThreadPriority::Crossplatform(priority);
        let _ = set_thread_priority_and_policy(thread_native_id(), priority, policy);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

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
