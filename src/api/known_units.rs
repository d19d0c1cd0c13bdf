//! Units that were read before, by the hash of their bytes: what reading one gave, apart from its text.
//!
//! Bounded: beyond that the cache forgets what was asked for least.

use std::borrow::Cow;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use super::template::Cut;
use super::{Api, Block, ContentHash, ToolResult, UnitKind};

/// A unit's entry without its lists, roughly, with its place in the table.
const ENTRY_BYTES: usize = 256;

/// What the same bytes mean depends on where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) api: Api,
    pub(super) kind: UnitKind,
    /// Of the bytes as sent.
    pub(super) sent: ContentHash,
}

/// What reading a unit gave.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitReading {
    pub(super) role: Cow<'static, str>,
    /// Of the text: the bytes as sent, less what was cut.
    pub(super) hash: Option<ContentHash>,
    pub(super) blocks: Arc<[Block]>,
    /// Where in the text something was cut out, and how many bytes.
    pub(super) cuts: Vec<(usize, usize)>,
    pub(super) tool_results: Vec<ToolResult>,
    /// Text of the system prompt that it brings.
    pub(super) system_texts: Vec<Arc<str>>,
    /// It names something that the server keeps.
    pub(super) is_reference: bool,
    /// Its bytes are a JSON value.
    pub(super) is_json: bool,
}

impl UnitReading {
    /// The unit's text and its cuts, from the bytes as sent.
    pub(super) fn text_and_cuts<'a>(&self, sent: &'a str) -> (Cow<'a, str>, Vec<Cut<'a>>) {
        if self.cuts.is_empty() {
            return (Cow::Borrowed(sent), Vec::new());
        }
        let mut text = String::with_capacity(sent.len());
        let mut cuts = Vec::with_capacity(self.cuts.len());
        let mut position = 0;
        for &(offset, length) in &self.cuts {
            let start = position + offset - text.len();
            text.push_str(&sent[position..start]);
            position = start + length;
            cuts.push(Cut { offset, removed: &sent[start..position] });
        }
        text.push_str(&sent[position..]);
        (Cow::Owned(text), cuts)
    }

    fn held_bytes(&self) -> usize {
        let results = self.tool_results.iter().map(|it| size_of_val(it) + it.call_id.len());
        ENTRY_BYTES
            + size_of_val(&self.blocks[..])
            + size_of_val(&self.cuts[..])
            + results.sum::<usize>()
            + self.system_texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// A unit's weight is what remembering it takes.
#[derive(Debug, Clone)]
struct HeldBytes;

impl Weighter<Key, Arc<UnitReading>> for HeldBytes {
    fn weight(&self, _: &Key, reading: &Arc<UnitReading>) -> u64 {
        reading.held_bytes() as u64
    }
}

/// Readings by key.
#[derive(Debug)]
pub(super) struct KnownUnits(Cache<Key, Arc<UnitReading>, HeldBytes>);

impl KnownUnits {
    /// Remembers units in about so many bytes; with 0 none.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self(Cache::with_weighter(max_bytes / ENTRY_BYTES, max_bytes as u64, HeldBytes))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<UnitReading>> {
        self.0.get(key).cloned()
    }

    pub(super) fn keep(&mut self, key: Key, reading: &Arc<UnitReading>) {
        self.0.insert(key, Arc::clone(reading));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> Key {
        Key { api: Api::Chat, kind: UnitKind::Message, sent: ContentHash(number) }
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut known = KnownUnits::new(64 * ENTRY_BYTES);
        let reading = Arc::new(UnitReading::default());
        for number in 0..1000 {
            known.keep(key(number), &reading);
            assert!(known.get(&key(0)).is_some(), "{number}");
            assert!(known.0.weight() <= 64 * ENTRY_BYTES as u64);
        }
        assert!(known.get(&key(999)).is_some() && known.get(&key(500)).is_none());
        let mut forgetful = KnownUnits::new(0);
        forgetful.keep(key(1), &reading);
        assert!(forgetful.get(&key(1)).is_none());
    }

    #[test]
    fn as_many_as_there_is_room_for_are_known_again_in_any_order() {
        let mut known = KnownUnits::new(1000 * ENTRY_BYTES);
        let reading = Arc::new(UnitReading::default());
        for round in 0..4 {
            let found = (0..950).filter(|number| {
                let is_known = known.get(&key(*number)).is_some();
                known.keep(key(*number), &reading);
                is_known
            });
            assert_eq!(found.count(), if round == 0 { 0 } else { 950 });
        }
    }

    #[test]
    fn cuts_are_found_in_the_bytes_as_sent() {
        let cuts = vec![(2, 3), (2, 1), (4, 2)];
        let (text, cuts) =
            UnitReading { cuts, ..UnitReading::default() }.text_and_cuts("abXYZWcdUVe");
        assert_eq!(text, "abcde");
        let removed: Vec<_> = cuts.iter().map(|cut| (cut.offset, cut.removed)).collect();
        assert_eq!(removed, [(2, "XYZ"), (2, "W"), (4, "UV")]);
    }
}
