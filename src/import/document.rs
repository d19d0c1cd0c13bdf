//! A file that is one JSON document over many lines, as its records.

use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::{Tally, open_tallied};
use crate::error::Result;

/// A larger document is not read: what is that long comes in lines.
pub(super) const LARGEST_DOCUMENT: usize = 256 << 20;
const BUFFER: usize = 1 << 16;

#[derive(Deserialize)]
struct MaybeMessage {
    #[serde(default)]
    role: Option<serde::de::IgnoredAny>,
}

/// The records of a document: the elements of a list, or the document itself; none where the file is none.
/// A list of messages is one record.
pub(super) fn document(path: &Path, tally: &Tally) -> Result<Option<Vec<String>>> {
    use std::io::Read as _;
    let mut text = String::new();
    let mut file = open_tallied(path, BUFFER, tally)?.take(LARGEST_DOCUMENT as u64 + 1);
    if file.read_to_string(&mut text).is_err() || text.len() > LARGEST_DOCUMENT {
        return Ok(None);
    }
    let text = text.trim_start_matches('\u{feff}');
    let Ok(whole) = serde_json::from_str::<&RawValue>(text) else { return Ok(None) };
    let elements: Vec<&RawValue> = serde_json::from_str(whole.get()).unwrap_or_default();
    let is_messages = elements.first().is_some_and(|first| {
        serde_json::from_str::<MaybeMessage>(first.get()).is_ok_and(|first| first.role.is_some())
    });
    if elements.is_empty() || is_messages {
        return Ok(Some(vec![whole.get().to_owned()]));
    }
    Ok(Some(elements.into_iter().map(|element| element.get().to_owned()).collect()))
}
