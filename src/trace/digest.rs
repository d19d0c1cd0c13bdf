//! A hash of what a recording holds, so that two replays can tell whether they sent the same one.
//!
//! Pure. Covered is what shapes a replay: who sent which new text when, how long the prompts and
//! outputs were, and the waits. The order of the rows does not matter, nor do ids that a run makes up
//! for itself. It tells recordings apart, it does not protect them.

use sha2::{Digest, Sha256};

use super::record::TurnRow;
use crate::hex::hex;

/// Takes turn rows, in any order.
#[derive(Debug, Clone, Copy, Default)]
pub struct TurnDigest {
    sum: u128,
}

impl TurnDigest {
    /// Takes one row. Read must be the columns that planning a replay reads.
    pub fn add(&mut self, turn: &TurnRow) {
        let mut hasher = Sha256::new();
        let mut text = |text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        for name in [&turn.session_id, &turn.thread_id, &turn.api] {
            text(name);
        }
        text(turn.parent_thread_id.as_deref().unwrap_or_default());
        // What a turn shares with the one before it was covered there.
        for unit in turn.unit_hashes.iter().skip(turn.n_shared_units as usize) {
            text(unit);
        }
        for block in turn.block_hashes.iter().flatten() {
            text(block);
        }
        for count in [u64::from(turn.turn), turn.n_shared_units.into(), turn.kind as u64] {
            hasher.update(count.to_le_bytes());
        }
        hasher.update((turn.outcome as u64).to_le_bytes());
        hasher.update((turn.body_template.len() as u64).to_le_bytes());
        for tokens in [turn.isl, turn.isl_cached, turn.osl, turn.block_size.map(u64::from)] {
            hasher.update([u8::from(tokens.is_some())]);
            hasher.update(tokens.unwrap_or_default().to_le_bytes());
        }
        let times = [turn.response_end_time, turn.tool_exec_ms, turn.residual_wait_ms];
        for time in times.into_iter().chain([Some(turn.request_time)]) {
            hasher.update([u8::from(time.is_some())]);
            hasher.update(time.unwrap_or_default().to_le_bytes());
        }
        let hash = hasher.finalize();
        let mut leading = [0; 16];
        leading.copy_from_slice(&hash[..16]);
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(leading));
    }

    /// The hash of all rows taken, 32 hex digits.
    pub fn finish(self) -> String {
        hex(&self.sum.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(turn: u32) -> TurnRow {
        TurnRow {
            session_id: "s".into(),
            thread_id: "t".into(),
            turn,
            request_id: format!("r{turn}"),
            unit_hashes: vec!["a".into(), format!("u{turn}")],
            n_shared_units: 1,
            request_time: 100.0 + f64::from(turn),
            osl: Some(7),
            ..TurnRow::default()
        }
    }

    fn hash(turns: &[TurnRow]) -> String {
        let mut digest = TurnDigest::default();
        for turn in turns {
            digest.add(turn);
        }
        digest.finish()
    }

    #[test]
    fn order_and_ids_do_not_matter() {
        let there = hash(&[turn(0), turn(1)]);
        assert_eq!(there, hash(&[turn(1), turn(0)]));
        let renamed = TurnRow { run_id: "x".into(), request_id: "y".into(), ..turn(1) };
        assert_eq!(there, hash(&[turn(0), renamed]));
        assert_eq!(there.len(), 32);
    }

    #[test]
    fn every_change_that_a_replay_sees_is_seen() {
        let there = hash(&[turn(0)]);
        let changed = [
            TurnRow { session_id: "o".into(), ..turn(0) },
            TurnRow { thread_id: "o".into(), ..turn(0) },
            TurnRow { parent_thread_id: Some("o".into()), ..turn(0) },
            TurnRow { api: "chat".into(), ..turn(0) },
            TurnRow { unit_hashes: vec!["a".into(), "other".into()], ..turn(0) },
            TurnRow { body_template: "{}".into(), ..turn(0) },
            TurnRow { osl: None, ..turn(0) },
            TurnRow { osl: Some(8), ..turn(0) },
            TurnRow { isl: Some(0), ..turn(0) },
            TurnRow { tool_exec_ms: Some(1.0), ..turn(0) },
            TurnRow { residual_wait_ms: Some(1.0), ..turn(0) },
            TurnRow { request_time: 100.5, ..turn(0) },
        ];
        for row in &changed {
            assert_ne!(there, hash(std::slice::from_ref(row)), "{row:?}");
        }
        assert_ne!(there, hash(&[turn(0), turn(0)]));
        assert_ne!(there, hash(&[]));
    }
}
