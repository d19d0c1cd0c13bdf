//! How many tokens each unit of a recording has, as far as its prompts' counts tell.
//!
//! Pure. A prompt's tokens less those of the units that earlier prompts gave tokens to are shared out by
//! bytes among its new units; what a unit was given once, it keeps, so that equal units are equally long
//! wherever they stand. The sum may differ from the count where a prompt was cut or counted otherwise:
//! what to do then is the caller's affair.

use std::collections::HashMap;
use std::hash::Hash;

/// Where a recording tells no prompt tokens, units count a token for this many bytes.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens given so far.
#[derive(Debug, Default)]
pub struct UnitTokens<K> {
    given: HashMap<K, u32>,
}

impl<K: Copy + Ord + Hash> UnitTokens<K> {
    /// Nothing is given yet.
    pub fn new() -> Self {
        Self { given: HashMap::new() }
    }

    /// The tokens of each unit of a prompt, in its order. `bytes` tells the length of a unit's text.
    pub fn of_prompt(
        &mut self,
        units: &[K],
        prompt_tokens: Option<u64>,
        bytes: impl Fn(K) -> u64,
    ) -> Vec<u32> {
        let mut new: Vec<K> =
            units.iter().filter(|unit| !self.given.contains_key(unit)).copied().collect();
        new.sort_unstable();
        // How often each of them stands in the prompt.
        let mut times: HashMap<K, u64> = HashMap::new();
        for unit in &new {
            *times.entry(*unit).or_default() += 1;
        }
        new.dedup();
        let bytes = |unit: K| bytes(unit).max(1);
        let given: u64 =
            units.iter().filter_map(|unit| self.given.get(unit)).map(|n| u64::from(*n)).sum();
        let mut left_bytes: u64 = new.iter().map(|unit| bytes(*unit) * times[unit]).sum();
        let mut left = match prompt_tokens {
            Some(tokens) => tokens.saturating_sub(given),
            None => left_bytes.div_ceil(BYTES_PER_TOKEN),
        };
        for unit in new {
            let (size, times) = (bytes(unit), times[&unit]);
            // In turn, so that rounding leaves nothing over; no unit is without a token.
            let share = (u128::from(left) * u128::from(size) / u128::from(left_bytes)) as u64;
            let share = share.max(1).min(left.max(1));
            left_bytes -= size * times;
            left = left.saturating_sub(share * times);
            self.given.insert(unit, share.min(u64::from(u32::MAX)) as u32);
        }
        units.iter().map(|unit| self.given[unit]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shared_out_by_bytes_among_new_units_and_kept() {
        let mut tokens = UnitTokens::new();
        let bytes = |unit: u32| u64::from(unit) * 10;
        // 1 has 10 bytes, 3 has 30.
        assert_eq!(tokens.of_prompt(&[1, 3], Some(100), bytes), [25, 75]);
        assert_eq!(tokens.of_prompt(&[1, 3, 2], Some(140), bytes), [25, 75, 40]);
        // Fewer tokens than are given: what was given stays.
        assert_eq!(tokens.of_prompt(&[1, 3, 2], Some(90), bytes), [25, 75, 40]);
        // A new unit has a token even where none is left; one that stands twice is counted twice.
        assert_eq!(tokens.of_prompt(&[1, 4], Some(20), bytes), [25, 1]);
        assert_eq!(tokens.of_prompt(&[5, 5], Some(10), bytes), [5, 5]);
        // No count: by bytes.
        assert_eq!(tokens.of_prompt(&[6, 7], None, bytes), [15, 18]);
        assert_eq!(tokens.of_prompt(&[], Some(7), bytes), Vec::<u32>::new());
    }
}
