//! A body as a template that names its units, and back to the exact bytes.
//!
//! A template is the body with placeholders where its units were. Placeholders are marked by control
//! characters, which valid JSON cannot hold raw:
//!
//! ```text
//! \x01 FIRST [-LAST] [\x04 SEPARATOR] { \x02 UNIT@OFFSET=BYTES } \x03
//! ```
//!
//! Units are named by their index in prompt order. A run of consecutive units with the same separator
//! (a comma and white space, or nothing; `,` where none is given) is one placeholder, so that a prompt of hundreds
//! of messages costs some bytes. Each cut says what was taken out of a unit at which byte of its text.
//! `\x01base64:0\x03` stands for a body that is not text.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::scan::{self, Span};

const OPEN: char = '\u{1}';
const CUT: char = '\u{2}';
const CLOSE: char = '\u{3}';
const SEPARATOR: char = '\u{4}';
const BASE64_MARK: &str = "base64:";

/// Bytes taken out of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut<'a> {
    /// Where in the text that is left they belong.
    pub(super) offset: usize,
    /// The bytes.
    pub(super) removed: &'a str,
}

/// Where a unit lies in the body, and what its stored text lacks.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    /// Range in the body.
    pub(super) span: Span,
    /// What was cut out, in order.
    pub(super) cuts: Vec<Cut<'a>>,
}

/// Takes every `cache_control` member out of a unit's (valid) JSON, at any depth, each with one
/// neighbouring comma, so that the rest stays valid.
pub(super) fn cut_cache_control(json: &str) -> (Cow<'_, str>, Vec<Cut<'_>>) {
    const KEY: &str = "\"cache_control\"";
    if !json.contains(KEY) {
        return (Cow::Borrowed(json), Vec::new());
    }
    let mut spans = Vec::new();
    // One entry per open container: for an object, where its next member starts from.
    let mut open: Vec<Option<OpenObject>> = Vec::new();
    let bytes = json.as_bytes();
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        match byte {
            b'"' => {
                let Some(end) = scan::string_end(bytes, position) else { break };
                let object = open.last_mut().and_then(Option::as_mut).filter(|o| o.expects_key);
                position = match object {
                    Some(object) if &json[position..end] == KEY => {
                        let Some((span, next)) = object.cut_member(bytes, position, end) else {
                            break;
                        };
                        spans.push(span);
                        next
                    }
                    Some(object) => {
                        object.keeps_any = true;
                        object.expects_key = false;
                        end
                    }
                    None => end,
                };
                continue;
            }
            b'{' => open.push(Some(OpenObject { keeps_any: false, expects_key: true, comma: 0 })),
            b'[' => open.push(None),
            b'}' | b']' => drop(open.pop()),
            b',' => {
                if let Some(Some(object)) = open.last_mut() {
                    object.expects_key = true;
                    object.comma = position;
                }
            }
            _ => {}
        }
        position += 1;
    }
    let (text, cuts) = take_out(json, &spans);
    (Cow::Owned(text), cuts)
}

struct OpenObject {
    keeps_any: bool,
    expects_key: bool,
    comma: usize,
}

impl OpenObject {
    /// What to cut for the member whose key is given, and where to read on.
    fn cut_member(&mut self, bytes: &[u8], key: usize, key_end: usize) -> Option<(Span, usize)> {
        let colon = scan::skip_space(bytes, key_end);
        let end = scan::value_end(bytes, scan::skip_space(bytes, colon + 1))?;
        if self.keeps_any {
            self.expects_key = false;
            return Some((self.comma..end, end));
        }
        let next = scan::skip_space(bytes, end);
        let end = if *bytes.get(next)? == b',' { scan::skip_space(bytes, next + 1) } else { end };
        Some((key..end, end))
    }
}

fn take_out<'a>(json: &'a str, spans: &[Span]) -> (String, Vec<Cut<'a>>) {
    let mut text = String::with_capacity(json.len());
    let mut cuts = Vec::with_capacity(spans.len());
    let mut position = 0;
    for span in spans {
        text.push_str(&json[position..span.start]);
        cuts.push(Cut { offset: text.len(), removed: &json[span.clone()] });
        position = span.end;
    }
    text.push_str(&json[position..]);
    (text, cuts)
}

/// The template of a body whose units, in prompt order, lie at `places`.
pub(super) fn make_template(body: &str, places: &[Place<'_>]) -> String {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&unit| places[unit].span.start);
    let mut template = String::new();
    let mut position = 0;
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let (length, separator) = run_length(body, places, rest);
        let run = &rest[..length];
        rest = &rest[length..];
        let last = run[length - 1];
        template.push_str(&body[position..places[first].span.start]);
        open_run(&mut template, first, last, separator);
        for &unit in run {
            for cut in &places[unit].cuts {
                template.push(CUT);
                // Writing to a String cannot fail.
                let _ = write!(template, "{unit}@{}={}", cut.offset, cut.removed);
            }
        }
        template.push(CLOSE);
        position = places[last].span.end;
    }
    template.push_str(&body[position..]);
    template
}

/// How many units from the first of `order` on make one run, and what separates them.
fn run_length<'a>(body: &'a str, places: &[Place<'_>], order: &[usize]) -> (usize, &'a str) {
    let mut separator = None;
    let mut length = 1;
    for pair in order.windows(2) {
        let gap = &body[places[pair[0]].span.end..places[pair[1]].span.start];
        let fits = separator.is_none_or(|known| known == gap);
        if pair[1] != pair[0] + 1 || !matches!(gap.trim(), "," | "") || !fits {
            break;
        }
        separator = Some(gap);
        length += 1;
    }
    (length, separator.unwrap_or(","))
}

/// A placeholder for the units `first` to `last`, from whose texts nothing was cut.
pub(super) fn run_of(first: usize, last: usize, separator: &str) -> String {
    let mut run = String::new();
    open_run(&mut run, first, last, separator);
    run.push(CLOSE);
    run
}

fn open_run(template: &mut String, first: usize, last: usize, separator: &str) {
    template.push(OPEN);
    // Writing to a String cannot fail.
    let _ = write!(template, "{first}");
    if last > first {
        let _ = write!(template, "-{last}");
    }
    if separator != "," {
        template.push(SEPARATOR);
        template.push_str(separator);
    }
}

/// The template and stored text of a body that is kept whole.
pub(super) fn whole_body(body: &[u8]) -> (String, Cow<'_, str>) {
    match std::str::from_utf8(body) {
        Ok(text) => (format!("{OPEN}0{CLOSE}"), Cow::Borrowed(text)),
        Err(_) => (format!("{OPEN}{BASE64_MARK}0{CLOSE}"), Cow::Owned(BASE64.encode(body))),
    }
}

/// The exact bytes of a body, from its template and the texts of its units in prompt order.
pub fn rebuild_body(template: &str, units: &[&str]) -> Result<Vec<u8>, String> {
    let size = template.len() + units.iter().map(|unit| unit.len() + 1).sum::<usize>();
    let mut body = Vec::with_capacity(size);
    let mut rest = template;
    while let Some((before, opened)) = rest.split_once(OPEN) {
        body.extend_from_slice(before.as_bytes());
        let (placeholder, after) =
            opened.split_once(CLOSE).ok_or("body template has a placeholder without end")?;
        fill_in(&mut body, placeholder, units)
            .ok_or_else(|| format!("body template does not fit its {} units", units.len()))?;
        rest = after;
    }
    body.extend_from_slice(rest.as_bytes());
    Ok(body)
}

/// Indexes of the units that a template names, as ranges.
pub(super) fn named_units(template: &str) -> Vec<std::ops::Range<usize>> {
    let opened = template.split(OPEN).skip(1);
    let head = |opened: &str| {
        let (placeholder, _) = opened.split_once(CLOSE)?;
        let range = placeholder.split([CUT, SEPARATOR]).next()?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
    };
    opened.filter_map(head).collect()
}

/// A template whose units from index `from` on have moved by so many, because others were put before
/// them.
pub(super) fn shifted(template: &str, from: usize, by: usize) -> String {
    let moved = |number: &str| match number.parse::<usize>() {
        Ok(unit) if unit >= from => (unit + by).to_string(),
        _ => number.to_owned(),
    };
    let mut shifted = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, opened)) = rest.split_once(OPEN) {
        let Some((placeholder, after)) = opened.split_once(CLOSE) else { break };
        shifted.push_str(before);
        shifted.push(OPEN);
        let mut parts = placeholder.split(CUT);
        let head = parts.next().unwrap_or_default();
        let (range, separator) = match head.split_once(SEPARATOR) {
            Some((range, separator)) => (range, Some(separator)),
            None => (head, None),
        };
        // A base64 body has one unit, before which nothing is put.
        let range: Vec<String> = range.split('-').map(moved).collect();
        shifted.push_str(&range.join("-"));
        if let Some(separator) = separator {
            shifted.push(SEPARATOR);
            shifted.push_str(separator);
        }
        for cut in parts {
            let (unit, removed) = cut.split_once('@').unwrap_or((cut, ""));
            shifted.push(CUT);
            shifted.push_str(&moved(unit));
            shifted.push('@');
            shifted.push_str(removed);
        }
        shifted.push(CLOSE);
        rest = after;
    }
    shifted.push_str(rest);
    shifted
}

fn fill_in(body: &mut Vec<u8>, placeholder: &str, units: &[&str]) -> Option<()> {
    if let Some(index) = placeholder.strip_prefix(BASE64_MARK) {
        let unit = units.get(index.parse::<usize>().ok()?)?;
        body.extend_from_slice(&BASE64.decode(unit).ok()?);
        return Some(());
    }
    let mut parts = placeholder.split(CUT);
    let head = parts.next()?;
    let (range, separator) = head.split_once(SEPARATOR).unwrap_or((head, ","));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let mut cuts = parts.map(read_cut).peekable();
    for index in first..=last {
        if index > first {
            body.extend_from_slice(separator.as_bytes());
        }
        let text = units.get(index)?;
        let mut position = 0;
        while let Some(cut) =
            cuts.next_if(|cut| cut.as_ref().is_some_and(|(unit, _)| *unit == index))
        {
            let (_, cut) = cut?;
            body.extend_from_slice(text.get(position..cut.offset)?.as_bytes());
            body.extend_from_slice(cut.removed.as_bytes());
            position = cut.offset;
        }
        body.extend_from_slice(&text.as_bytes()[position..]);
    }
    cuts.next().is_none().then_some(())
}

fn read_cut(cut: &str) -> Option<(usize, Cut<'_>)> {
    let (place, removed) = cut.split_once('=')?;
    let (unit, offset) = place.split_once('@')?;
    Some((unit.parse().ok()?, Cut { offset: offset.parse().ok()?, removed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_control_is_cut_and_the_rest_stays_valid() {
        let cases = [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1,"cache_control":{"type":"ephemeral"}}"#, r#"{"a":1}"#),
            (r#"{"cache_control":null,"a":1}"#, r#"{"a":1}"#),
            (r#"{"cache_control" : {"ttl":"1h"} , "a":1}"#, r#"{"a":1}"#),
            (r#"{ "cache_control":[1,"}"] }"#, "{  }"),
            (r#"{"a":1 , "cache_control":1 , "b":2}"#, r#"{"a":1  , "b":2}"#),
            (r#"{"cache_control":1,"cache_control":2,"a":3}"#, r#"{"a":3}"#),
            (r#"{"cache_control":1,"cache_control":2}"#, "{}"),
            (r#"{"a":3,"cache_control":1,"cache_control":2}"#, r#"{"a":3}"#),
            (
                r#"{"c":[{"t":"x","cache_control":1},{"cache_control":2}],"d":{"cache_control":3,"e":{}}}"#,
                r#"{"c":[{"t":"x"},{}],"d":{"e":{}}}"#,
            ),
            (
                r#"{"a":"cache_control","b":["cache_control"]}"#,
                r#"{"a":"cache_control","b":["cache_control"]}"#,
            ),
            (r#"{"a":"\"cache_control\":1"}"#, r#"{"a":"\"cache_control\":1"}"#),
            (r#""cache_control""#, r#""cache_control""#),
        ];
        for (json, expected) in cases {
            let (text, cuts) = cut_cache_control(json);
            assert_eq!(text, expected, "{json}");
            serde_json::from_str::<serde_json::Value>(&text).expect("valid");
            let template = make_template(json, &[Place { span: 0..json.len(), cuts }]);
            assert_eq!(rebuild_body(&template, &[&text]).unwrap(), json.as_bytes());
        }
    }

    #[test]
    fn runs_of_units_are_one_placeholder() {
        let place = |span: Span| Place { span, cuts: Vec::new() };
        let cases: [(&str, &[Span], &str); 5] = [
            ("[1,2,3]", &[1..2, 3..4, 5..6], "[\u{1}0-2\u{3}]"),
            ("[1, 2, 3]", &[1..2, 4..5, 7..8], "[\u{1}0-2\u{4}, \u{3}]"),
            ("[1, 2,3]", &[1..2, 4..5, 6..7], "[\u{1}0-1\u{4}, \u{3},\u{1}2\u{3}]"),
            ("[1,2],[3]", &[7..8, 1..2, 3..4], "[\u{1}1-2\u{3}],[\u{1}0\u{3}]"),
            ("{\"abcd\"}", &[1..4, 4..6, 6..7], "{\u{1}0-2\u{4}\u{3}}"),
        ];
        for (body, spans, expected) in cases {
            let places: Vec<_> = spans.iter().cloned().map(place).collect();
            let template = make_template(body, &places);
            assert_eq!(template, expected);
            let units: Vec<&str> = spans.iter().map(|span| &body[span.clone()]).collect();
            assert_eq!(rebuild_body(&template, &units).unwrap(), body.as_bytes());
        }
    }

    #[test]
    fn units_put_before_others_move_their_numbers() {
        let cases = [
            ("{\u{1}0\u{3},\u{1}1-3\u{3}}", 1, "{\u{1}0\u{3},\u{1}6-8\u{3}}"),
            (
                "\u{1}2-3\u{4}, \u{2}3@4=,\"x-1\"@2\u{3}",
                2,
                "\u{1}7-8\u{4}, \u{2}8@4=,\"x-1\"@2\u{3}",
            ),
            ("\u{1}0-1\u{3}", 2, "\u{1}0-1\u{3}"),
            ("no unit", 0, "no unit"),
        ];
        for (template, from, expected) in cases {
            assert_eq!(shifted(template, from, 5), expected, "{template:?}");
        }
    }

    #[test]
    fn a_template_that_does_not_fit_is_refused() {
        let misfit = "body template does not fit its 1 units";
        let cases = [
            ("\u{1}0", "body template has a placeholder without end"),
            ("\u{1}1\u{3}", misfit),
            ("\u{1}0-1\u{3}", misfit),
            ("\u{1}x\u{3}", misfit),
            ("\u{1}0\u{2}0@99=x\u{3}", misfit),
            ("\u{1}0\u{2}7@0=x\u{3}", misfit),
            ("\u{1}0\u{2}nonsense\u{3}", misfit),
            ("\u{1}base64:0\u{3}", misfit),
        ];
        for (template, expected) in cases {
            assert_eq!(rebuild_body(template, &["{?}"]).unwrap_err(), expected, "{template:?}");
        }
    }
}
