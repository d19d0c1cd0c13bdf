//! What is new of sources that were imported before: decided from what was read then and what lies there now.
//!
//! Pure.

use super::state::Part;

/// A file as it lies there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) bytes: u64,
    /// Hash of as many of its first bytes as were read before; none where it has fewer.
    pub(super) sha256: Option<String>,
}

/// How a file has changed since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was not read before.
    New,
    /// It is what was read.
    Same,
    /// It begins with what was read.
    Grew,
    /// It is shorter than what was read.
    Shrank,
    /// What was read is no longer in it.
    Changed,
    /// It was read before and is not there.
    Gone,
}

/// How a file has changed.
pub(super) fn change(known: Option<&Part>, now: Option<&Now>) -> Change {
    match (known, now) {
        (None, _) => Change::New,
        (Some(_), None) => Change::Gone,
        (Some(known), Some(now)) if now.bytes < known.bytes => Change::Shrank,
        (Some(known), Some(now)) if now.sha256.as_ref() != Some(&known.sha256) => Change::Changed,
        (Some(known), Some(now)) if now.bytes > known.bytes => Change::Grew,
        _ => Change::Same,
    }
}

/// What an update does with a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is as it was.
    Keep,
    /// It is new, or there is more of it: it is read, in place of what it came to before.
    Read,
    /// What it came to before stays, and the reason is told.
    Refuse(&'static str),
}

/// What is done with a piece whose files have changed so. `is_rewritten`: its program writes its files anew
/// where it adds something.
pub(super) fn decide(changes: &[Change], is_rewritten: bool) -> Decision {
    let any = |wanted: Change| changes.contains(&wanted);
    if changes.iter().all(|change| *change == Change::Same) {
        return Decision::Keep;
    }
    if is_rewritten && !any(Change::Gone) {
        return Decision::Read;
    }
    if any(Change::Shrank) {
        return Decision::Refuse("is shorter than when it was imported");
    }
    if any(Change::Changed) {
        return Decision::Refuse("was changed where it had been read");
    }
    if any(Change::Gone) && (any(Change::Grew) || any(Change::New)) {
        return Decision::Refuse("is gone, and others of its session have grown");
    }
    // Sources go as logs are cleared away; what they came to stays.
    if any(Change::Gone) { Decision::Keep } else { Decision::Read }
}

/// Whose change is the reason.
pub(super) fn is_reason(change: Change, decision: &Decision) -> bool {
    match decision {
        Decision::Refuse(what) if what.contains("shorter") => change == Change::Shrank,
        Decision::Refuse(what) if what.contains("changed") => change == Change::Changed,
        Decision::Refuse(_) => change == Change::Gone,
        Decision::Keep | Decision::Read => false,
    }
}

#[cfg(test)]
mod tests {
    use Change::{Changed, Gone, Grew, New, Same, Shrank};

    use super::*;

    #[test]
    fn files_are_known_by_size_and_by_the_part_that_was_read() {
        let known = Part { path: "a".into(), bytes: 10, sha256: "x".to_owned() };
        let now = |bytes, hash: Option<&str>| Now { bytes, sha256: hash.map(str::to_owned) };
        for (known, now, expected) in [
            (None, Some(now(10, None)), New),
            (Some(&known), None, Gone),
            (Some(&known), Some(now(10, Some("x"))), Same),
            (Some(&known), Some(now(11, Some("x"))), Grew),
            (Some(&known), Some(now(9, None)), Shrank),
            (Some(&known), Some(now(10, Some("y"))), Changed),
            (Some(&known), Some(now(11, Some("y"))), Changed),
        ] {
            assert_eq!(change(known, now.as_ref()), expected, "{now:?}");
        }
    }

    #[test]
    fn what_is_done_follows_from_the_changes() {
        let shorter = Decision::Refuse("is shorter than when it was imported");
        let changed = Decision::Refuse("was changed where it had been read");
        let gone = Decision::Refuse("is gone, and others of its session have grown");
        for (changes, is_rewritten, expected) in [
            (&[New][..], false, Decision::Read),
            (&[Same], false, Decision::Keep),
            (&[Grew], false, Decision::Read),
            (&[Same, New], false, Decision::Read),
            (&[Same, Grew], false, Decision::Read),
            (&[Shrank], false, shorter.clone()),
            (&[Grew, Shrank], false, shorter),
            (&[Changed], false, changed.clone()),
            (&[New, Changed], false, changed),
            (&[Gone], false, Decision::Keep),
            (&[Gone, Same], false, Decision::Keep),
            (&[Gone, Grew], false, gone),
            (&[Changed], true, Decision::Read),
            (&[Shrank], true, Decision::Read),
            (&[Same], true, Decision::Keep),
            (&[Gone], true, Decision::Keep),
        ] {
            assert_eq!(decide(changes, is_rewritten), expected, "{changes:?}");
        }
    }
}
