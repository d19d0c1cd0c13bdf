//! The strings of JSON text, read as what they say, and places in them told as places in the text. Pure.

use super::Edit;

/// What `find` finds in each string, as places in the JSON text. Only quotes and backslashes are looked at: what
/// is no JSON gives no wrong places, only fewer.
pub(super) fn find(json: &str, find: impl Fn(&str) -> Vec<Edit>) -> Vec<Edit> {
    let bytes = json.as_bytes();
    let mut edits = Vec::new();
    let mut position = 0;
    while let Some(open) = bytes[position..].iter().position(|byte| *byte == b'"') {
        let start = position + open + 1;
        let Some((end, is_escaped)) = string_end(bytes, start) else { break };
        let raw = &json[start..end];
        if is_escaped {
            let (text, origins) = decoded(raw);
            edits.extend(find(&text).into_iter().map(|edit| Edit {
                span: start + origins[edit.span.start]..start + origins[edit.span.end],
                ..edit
            }));
        } else {
            edits.extend(
                find(raw).into_iter().map(|edit| Edit {
                    span: start + edit.span.start..start + edit.span.end,
                    ..edit
                }),
            );
        }
        position = end + 1;
    }
    edits
}

/// Where a string that begins at `start` (behind its quote) ends, and whether it has escapes.
fn string_end(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let (mut position, mut is_escaped) = (start, false);
    loop {
        let rest = bytes.get(position..)?;
        position += rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if bytes[position] == b'"' {
            return Some((position, is_escaped));
        }
        is_escaped = true;
        position += 2;
    }
}

/// What a string says, and for each byte of it (and its end) where in the raw text that comes from. An escape that
/// is none stays as it is.
fn decoded(raw: &str) -> (String, Vec<usize>) {
    let mut text = String::with_capacity(raw.len());
    let mut origins = Vec::with_capacity(raw.len() + 1);
    let mut position = 0;
    while position < raw.len() {
        let plain = raw[position..].find('\\').map_or(raw.len(), |at| position + at);
        text.push_str(&raw[position..plain]);
        origins.extend(position..plain);
        position = plain;
        if position == raw.len() {
            break;
        }
        let (character, length) = escape(&raw[position..]);
        text.push(character);
        origins.extend(std::iter::repeat_n(position, character.len_utf8()));
        position += length;
    }
    origins.push(raw.len());
    (text, origins)
}

/// The character that an escape at the start of `raw` means, and its length.
fn escape(raw: &str) -> (char, usize) {
    let plain = |character| (character, 2);
    match raw.as_bytes().get(1) {
        Some(b'n') => plain('\n'),
        Some(b't') => plain('\t'),
        Some(b'r') => plain('\r'),
        Some(b'b') => plain('\u{8}'),
        Some(b'f') => plain('\u{c}'),
        Some(b'"') => plain('"'),
        Some(b'/') => plain('/'),
        Some(b'\\') => plain('\\'),
        Some(b'u') => {
            let Some(first) = unit(raw, 2) else { return ('\\', 1) };
            if let Some(character) = char::from_u32(first) {
                return (character, 6);
            }
            let is_pair = raw.get(6..8) == Some("\\u");
            let second = if is_pair { unit(raw, 8) } else { None };
            let both = second.and_then(|second| {
                char::decode_utf16([first as u16, second as u16]).next().and_then(Result::ok)
            });
            both.map_or(('\u{fffd}', 6), |character| (character, 12))
        }
        _ => ('\\', 1),
    }
}

fn unit(raw: &str, at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 4)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    /// Finds each `secret`, and each `é@`.
    fn secrets(text: &str) -> Vec<Edit> {
        let mut edits: Vec<Edit> = ["secret", "é@"]
            .iter()
            .flat_map(|wanted| text.match_indices(wanted))
            .map(|(at, found)| Edit {
                kind: Kind::Key,
                span: at..at + found.len(),
                mask: "M".into(),
            })
            .collect();
        edits.sort_by_key(|edit| edit.span.start);
        edits
    }

    #[test]
    fn only_strings_change_and_only_where_something_is() {
        for (json, masked) in [
            (r#"{"a":"my secret","b":[1,"secret"]}"#, r#"{"a":"my M","b":[1,"M"]}"#),
            (r#"{"secret" : "\/\u0041"}"#, r#"{"M" : "\/\u0041"}"#),
            // Escapes beside it stay in their spelling; those within it are read.
            (r#""\u00e9\n secr\u0065t\t\"x""#, r#""\u00e9\n M\t\"x""#),
            (r#""\\secret\\n""#, r#""\\M\\n""#),
            (r#""\u00e9@ é@""#, r#""M M""#),
            (r#""\ud83d\ude00secret\ud83d""#, r#""\ud83d\ude00M\ud83d""#),
            ("secret", "secret"),
            (r#"["unended secret"#, r#"["unended secret"#),
            (r#""broken \u12 secret \x""#, r#""broken \u12 M \x""#),
            (r#""""#, r#""""#),
        ] {
            assert_eq!(super::super::apply(json, &find(json, secrets)), masked, "{json}");
        }
    }
}
