//! The Prometheus text format, read as raw samples by name.
//!
//! Pure and allocation-free: the caller says which sample names it wants, other lines are checked no
//! further than their name. Histograms are not folded; `_sum` and `_count` are samples like any other.
//! What a name means is the readers' to say, fetching the page `client`'s.

use std::borrow::Cow;

/// Why a text is not a metrics page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// One sample line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'page> {
    /// The sample's name, suffixes such as `_sum` included.
    pub name: &'page str,
    /// What stands between the braces.
    pub labels: Labels<'page>,
    /// The value; may be NaN or infinite.
    pub value: f64,
}

/// The labels of a sample, unescaped only when asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels<'page>(&'page str);

impl<'page> Labels<'page> {
    /// The value of a label, escapes resolved.
    pub fn get(&self, wanted: &str) -> Option<Cow<'page, str>> {
        self.iter().find(|(name, _)| *name == wanted).map(|(_, raw)| unescape(raw))
    }

    /// Names and raw values, in order. `scan` has checked the syntax before.
    fn iter(&self) -> impl Iterator<Item = (&'page str, &'page str)> + use<'page> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let (name, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start_matches([' ', '\t']))?;
            rest = after;
            Some((name.trim_end_matches([' ', '\t']), value))
        })
    }
}

/// Reads a page: calls `visit` for each sample whose name `wanted` knows, and returns how many samples
/// the page holds in all. Text after an `OpenMetrics` `# EOF` is not read.
pub fn scan<'page, Key: Copy>(
    page: &'page str,
    mut wanted: impl FnMut(&'page str) -> Option<Key>,
    mut visit: impl FnMut(Key, Sample<'page>),
) -> Result<usize, ParseError> {
    let mut samples = 0;
    // The buckets of a histogram stand in a row: the verdict on the last name mostly serves again.
    let mut last: Option<(&str, Option<Key>)> = None;
    for (index, line) in page.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start_matches([' ', '\t']);
        if let Some(comment) = line.strip_prefix('#') {
            if comment.trim_end() == " EOF" {
                break;
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        samples += 1;
        let fail = |reason| ParseError { line: index + 1, reason: explain(page, reason) };
        let (name, key, rest) = if let Some(seen) = repeated(last, line) {
            seen
        } else {
            let (name, rest) = split_name(line).map_err(fail)?;
            (name, wanted(name), rest)
        };
        last = Some((name, key));
        if let Some(key) = key {
            let (labels, value) = labels_and_value(rest).map_err(fail)?;
            visit(key, Sample { name, labels, value });
        }
    }
    Ok(samples)
}

/// The last line's name and verdict, where this line begins with that name.
fn repeated<'page, Key: Copy>(
    last: Option<(&'page str, Option<Key>)>,
    line: &'page str,
) -> Option<(&'page str, Option<Key>, &'page str)> {
    let (name, key) = last?;
    let rest = line.strip_prefix(name)?;
    rest.starts_with('{').then_some((name, key, rest))
}

/// Says plainly when the whole page is of another kind.
fn explain(page: &str, reason: &'static str) -> &'static str {
    match page.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).chars().next() {
        Some('<') => "the page is HTML or XML, not a Prometheus metrics page",
        Some('{' | '[') => "the page is JSON, not a Prometheus metrics page",
        _ => reason,
    }
}

/// Name and the text after it; labels begin with their brace. Names outside the classic character set
/// stand quoted inside the braces.
fn split_name(line: &str) -> Result<(&str, &str), &'static str> {
    if let Some(inside) = line.strip_prefix('{') {
        let named = quoted(inside.trim_start())
            .filter(|(name, rest)| !name.is_empty() && rest.trim_start().starts_with([',', '}']));
        return named.ok_or("a sample without a name");
    }
    let end = line.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    match (name.as_bytes().first(), rest.as_bytes().first()) {
        (None, _) => Err("a sample without a name"),
        (Some(digit), _) if digit.is_ascii_digit() => Err("a name that begins with a digit"),
        (_, None) => Err("a name without a value"),
        (_, Some(b'{' | b' ' | b'\t')) => Ok((name, rest)),
        _ => Err("a name with a character that no metric name has"),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

fn labels_and_value(rest: &str) -> Result<(Labels<'_>, f64), &'static str> {
    let rest = rest.trim_start_matches([' ', '\t']);
    let (labels, rest) = match rest.as_bytes().first() {
        // The second form is the rest of a quoted name.
        Some(b'{') => split_labels(&rest[1..])?,
        Some(b',' | b'}') => split_labels(rest)?,
        _ => (Labels(""), rest),
    };
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let value = words.next().ok_or("a sample without a value")?;
    let value = value.parse().map_err(|_| "a value that is no number")?;
    // An exemplar, behind `#`, says where one observation came from; it has no part in the value.
    if let Some(stamp) = words.next().filter(|word| *word != "#") {
        stamp.parse::<f64>().map_err(|_| "a timestamp that is no number")?;
        if words.next().is_some_and(|word| word != "#") {
            return Err("text after the timestamp");
        }
    }
    Ok((labels, value))
}

/// Walks over `name="value"` pairs up to the closing brace.
fn split_labels(inside: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut rest = inside;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            let length = inside.len() - rest.len();
            return Ok((Labels(&inside[..length]), after));
        }
        let (name, after) = rest.split_once('=').ok_or("labels without a closing brace")?;
        let name = name.trim_matches([' ', '\t', '"']);
        if name.is_empty() || name.contains(['{', '}', '"', ',']) {
            return Err("a label without a name");
        }
        let value = quoted(after.trim_start_matches([' ', '\t']));
        (_, rest) = value.ok_or("a label value without closing quotes")?;
    }
}

/// The raw text between quotes, and what follows them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut escaped = false;
    for (index, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some((&inside[..index], &inside[index + 1..])),
            _ => {}
        }
    }
    None
}

fn unescape(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some(other @ ('\\' | '"')) => text.push(other),
            // The format leaves other escapes undefined: keep what was sent.
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A sample's name, its label `l` and its value.
    type Seen<'text> = (&'text str, Option<&'text str>, f64);

    /// The samples, or line and a part of the error.
    fn check(page: &str, expected: &Result<Vec<Seen<'_>>, (usize, &str)>) {
        let mut seen = Vec::new();
        let result = scan(page, |_| Some(()), |(), sample| seen.push(sample));
        match expected {
            Ok(samples) => {
                assert_eq!(result, Ok(samples.len()), "{page:?}");
                for (sample, (name, label, value)) in seen.iter().zip(samples) {
                    assert_eq!(sample.name, *name, "{page:?}");
                    assert_eq!(sample.labels.get("l").as_deref(), *label, "{page:?}");
                    assert!(
                        sample.value.to_bits() == value.to_bits()
                            || sample.value.is_nan() && value.is_nan(),
                        "{page:?}: {} is not {value}",
                        sample.value
                    );
                }
            }
            Err((line, part)) => {
                let error = result.expect_err(page);
                assert_eq!(error.line, *line, "{page:?}: {error}");
                assert!(error.to_string().contains(part), "{page:?}: {error}");
            }
        }
    }

    #[test]
    fn samples_of_every_form() {
        let none: Option<&str> = None;
        for (page, expected) in [
            ("", vec![]),
            ("\n\n# HELP a b\n# TYPE a counter\n", vec![]),
            ("a 1", vec![("a", none, 1.0)]),
            ("a 1\r\nb 2\r\n", vec![("a", none, 1.0), ("b", none, 2.0)]),
            ("  a\t 1.5e3 \n", vec![("a", none, 1500.0)]),
            ("a{} 1\n", vec![("a", none, 1.0)]),
            ("vllm:a_total{m=\"x\",l=\"y\"} 7\n", vec![("vllm:a_total", Some("y"), 7.0)]),
            ("a{ l = \"y\" , } 7\n", vec![("a", Some("y"), 7.0)]),
            ("a{l=\"}, l=\\\"\\\\\\n\\t{\"} 7\n", vec![("a", Some("}, l=\"\\\n\\t{"), 7.0)]),
            ("a{l=\"ü€\"} 7\n", vec![("a", Some("ü€"), 7.0)]),
            ("a{l=\"y\"}7\n", vec![("a", Some("y"), 7.0)]),
            ("a 1 1395066363000\n", vec![("a", none, 1.0)]),
            ("a 1 1395066363.25\n", vec![("a", none, 1.0)]),
            (
                "a_bucket{le=\"+Inf\"} 4 # {trace_id=\"x y\"} 0.2 1.5\n",
                vec![("a_bucket", none, 4.0)],
            ),
            ("a 4 17 # {t=\"x\"} 0.2\n", vec![("a", none, 4.0)]),
            (
                "a NaN\nb +Inf\nc -Inf\n",
                vec![
                    ("a", none, f64::NAN),
                    ("b", none, f64::INFINITY),
                    ("c", none, f64::NEG_INFINITY),
                ],
            ),
            ("a -0\n", vec![("a", none, -0.0)]),
            ("a 1\n# EOF\nnot a sample\n", vec![("a", none, 1.0)]),
            ("a 1\n# EOF of nothing\nb 2\n", vec![("a", none, 1.0), ("b", none, 2.0)]),
            (
                "{\"a.b\",l=\"y\"} 3\n{\"c.d\"} 4\n",
                vec![("a.b", Some("y"), 3.0), ("c.d", none, 4.0)],
            ),
        ] {
            check(page, &Ok(expected));
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (page, line, part) in [
            ("a\n", 1, "without a value"),
            ("a 1\n\nb x\n", 3, "no number"),
            ("a 1\nb{l=\"x} 3\n", 2, "closing quotes"),
            ("b{l=\"x\" 3\n", 1, "closing brace"),
            ("b{=\"x\"} 3\n", 1, "label without a name"),
            ("b{l=\"x\"}\n", 1, "without a value"),
            ("9a 1\n", 1, "digit"),
            ("a 1\n{\"\"} 1\n", 2, "without a name"),
            ("a-b 1\n", 1, "character"),
            ("a 1 later\n", 1, "timestamp"),
            ("a 1 2 3\n", 1, "after the timestamp"),
            ("\n<!DOCTYPE html>\n<html></html>\n", 2, "HTML"),
            ("{\"error\": \"not found\"}", 1, "JSON"),
            ("[{\"iter\": 1}]", 1, "JSON"),
            ("Not Found\nat all", 1, "no number"),
        ] {
            check(page, &Err((line, part)));
        }
    }

    #[test]
    fn unwanted_lines_are_read_no_further_than_their_name() {
        let mut asked = Vec::new();
        let mut seen = Vec::new();
        let page = "h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} broken\nh_sum{} 2\nh_sum{} 3\n";
        let samples = scan(
            page,
            |name| {
                asked.push(name);
                (name == "h_sum").then_some(())
            },
            |(), sample| seen.push(sample.value),
        );
        assert_eq!(samples, Ok(4));
        assert_eq!(asked, ["h_bucket", "h_sum"]);
        assert_eq!(seen, [2.0, 3.0]);
    }

    proptest! {
        #[test]
        fn labels_survive_writing_and_reading(value in "\\PC*", number in any::<f64>()) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let page = format!("a{{x=\"1\",l=\"{escaped}\"}} {number}\n");
            let mut seen = None;
            scan(&page, |_| Some(()), |(), sample| seen = Some(sample)).expect("a page");
            let sample = seen.expect("a sample");
            prop_assert_eq!(sample.labels.get("l").expect("the label"), value);
            let same = sample.value.to_bits() == number.to_bits();
            prop_assert!(same || number.is_nan());
        }

        #[test]
        fn no_text_panics(page in "\\PC*|([a-z:]{0,3}[{}\"=, \\\\#\n\r0-9]{0,6}){0,12}") {
            let _ = scan(&page, |_| Some(()), |(), sample| { let _ = sample.labels.get("l"); });
        }
    }
}
