//! Where things lie in JSON text, as byte ranges: what editing and cutting without touching other
//! bytes needs.
//!
//! Only the structure on the way is looked at; whether the insides of values are valid JSON is for
//! serde to say. Iterative, so depth costs no stack.

use std::ops::Range;

/// A range of bytes of the text.
pub(super) type Span = Range<usize>;

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// The key with its quotes.
    pub(super) key: Span,
    /// The value.
    pub(super) value: Span,
    /// Elements of a list of objects, lists or strings, met on the way to its end: a long one is not read twice.
    elements: Option<Vec<Span>>,
}

impl Member {
    /// The elements, where the value is a list.
    pub(super) fn elements(&self, text: &str) -> Option<Vec<Span>> {
        self.elements.clone().or_else(|| elements(text, self.value.start))
    }

    /// Whether the key says `name`, in whatever spelling.
    pub(super) fn is_named(&self, text: &str, name: &str) -> bool {
        self.name(text).is_some_and(|key| key == name)
    }

    /// The key, unescaped; none where it is no valid string.
    pub(super) fn name<'a>(&self, text: &'a str) -> Option<std::borrow::Cow<'a, str>> {
        let quoted = text.get(self.key.clone())?;
        if quoted.contains('\\') {
            serde_json::from_str::<String>(quoted).ok().map(Into::into)
        } else {
            Some(quoted[1..quoted.len() - 1].into())
        }
    }
}

/// The members of the object that starts at `at` (white space skipped), and where it ends.
pub(super) fn members(text: &str, at: usize) -> Option<(Vec<Member>, usize)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let end = each_entry(bytes, at, (b'{', b'}'), |key_start| {
        let key_end = string_end(bytes, key_start)?;
        let colon = skip_space(bytes, key_end);
        (*bytes.get(colon)? == b':').then_some(())?;
        let value_start = skip_space(bytes, colon + 1);
        let (value_end, elements) = match long_list(bytes, value_start) {
            Some((elements, end)) => (end, Some(elements)),
            None => (value_end(bytes, value_start)?, None),
        };
        found.push(Member { key: key_start..key_end, value: value_start..value_end, elements });
        Some(value_end)
    })?;
    Some((found, end))
}

/// Elements and end of the list that starts at `at`; none of one of plain values, of which there may be as many as
/// tokens, and none of what is no list.
fn long_list(bytes: &[u8], at: usize) -> Option<(Vec<Span>, usize)> {
    (*bytes.get(at)? == b'[').then_some(())?;
    let first = *bytes.get(skip_space(bytes, at + 1))?;
    matches!(first, b'{' | b'[' | b'"').then_some(())?;
    list(bytes, at)
}

fn list(bytes: &[u8], at: usize) -> Option<(Vec<Span>, usize)> {
    let mut found = Vec::new();
    let end = each_entry(bytes, at, (b'[', b']'), |start| {
        let end = value_end(bytes, start)?;
        found.push(start..end);
        Some(end)
    })?;
    Some((found, end))
}

/// The elements of the array that starts at `at`.
pub(super) fn elements(text: &str, at: usize) -> Option<Vec<Span>> {
    list(text.as_bytes(), at).map(|(elements, _)| elements)
}

/// The first thing that `find` makes of an element of the array that starts at `at`; what comes after
/// that element is not read.
pub(super) fn find_element<T>(
    text: &str,
    at: usize,
    mut find: impl FnMut(Span) -> Option<T>,
) -> Option<T> {
    let bytes = text.as_bytes();
    let mut found = None;
    each_entry(bytes, at, (b'[', b']'), |start| {
        let end = value_end(bytes, start)?;
        found = find(start..end);
        found.is_none().then_some(end)
    });
    found
}

fn each_entry(
    bytes: &[u8],
    at: usize,
    (open, close): (u8, u8),
    mut take: impl FnMut(usize) -> Option<usize>,
) -> Option<usize> {
    let start = skip_space(bytes, at);
    (*bytes.get(start)? == open).then_some(())?;
    let mut position = skip_space(bytes, start + 1);
    if *bytes.get(position)? == close {
        return Some(position + 1);
    }
    loop {
        position = skip_space(bytes, take(position)?);
        match *bytes.get(position)? {
            b',' => position = skip_space(bytes, position + 1),
            byte if byte == close => return Some(position + 1),
            _ => return None,
        }
    }
}

/// The first position from `at` that is no white space.
pub(super) fn skip_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// The end of the string that starts at `at` with its quote.
pub(super) fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    (*bytes.get(at)? == b'"').then_some(())?;
    let mut position = at + 1;
    loop {
        let rest = bytes.get(position..)?;
        let stop = position + memchr::memchr2(b'"', b'\\', rest)?;
        if bytes[stop] == b'"' {
            return Some(stop + 1);
        }
        position = stop + 2;
    }
}

/// The end of the value that starts at `at`.
pub(super) fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => container_end(bytes, at),
        _ => {
            let rest = &bytes[at..];
            let is_end = |byte: &u8| {
                matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\n' | b'\r')
            };
            let length = rest.iter().position(is_end).unwrap_or(rest.len());
            (length > 0).then_some(at + length)
        }
    }
}

fn container_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut position = at;
    loop {
        match *bytes.get(position)? {
            b'"' => {
                position = string_end(bytes, position)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(position + 1);
                }
            }
            _ => {}
        }
        position += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_objects() {
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: &[(&str, Option<Pairs>)] = &[
            ("{}", Some(&[])),
            (" { } ", Some(&[])),
            (r#"{"a":1,"b":"x"}"#, Some(&[("a", "1"), ("b", "\"x\"")])),
            (
                "{ \"a\" : {\"}\":[1]} ,\n\"\\u0062\":[ \"\\\"]\" ] }",
                Some(&[("a", "{\"}\":[1]}"), ("b", "[ \"\\\"]\" ]")]),
            ),
            (r#"{"a":-1.5e3,"a":null}"#, Some(&[("a", "-1.5e3"), ("a", "null")])),
            ("", None),
            ("[]", None),
            (r#"{"a"}"#, None),
            (r#"{"a":}"#, None),
            (r#"{"a":1"#, None),
            (r#"{"a":1,}"#, None),
            (r#"{"a":[1"#, None),
            (r#"{"a":"\"#, None),
            (r#"{"a":1 "b":2}"#, None),
        ];
        for (text, expected) in cases {
            let found = members(text, 0).map(|(members, _)| {
                members
                    .iter()
                    .map(|member| {
                        (
                            member.name(text).unwrap().into_owned(),
                            text[member.value.clone()].to_owned(),
                        )
                    })
                    .collect::<Vec<_>>()
            });
            let expected = expected.map(|pairs| {
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn elements_of_arrays() {
        let text = r#" [ 1,"a,]" , {"b":[2,3]},[] ]"#;
        let found: Vec<&str> =
            elements(text, 0).unwrap().into_iter().map(|span| &text[span]).collect();
        assert_eq!(found, ["1", "\"a,]\"", "{\"b\":[2,3]}", "[]"]);
        assert_eq!(elements("[]", 0), Some(vec![]));
        assert_eq!(elements("[1", 0), None);
        let first_string = |span: Span| text[span.clone()].starts_with('"').then_some(span);
        assert_eq!(find_element(text, 0, first_string).map(|span| &text[span]), Some("\"a,]\""));
        assert_eq!(find_element("[1,2", 0, |span| Some(span.start)), Some(1));
        assert_eq!(find_element("[1]", 0, |_| None::<()>), None);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(elements(&deep, 0).unwrap()[0], 1..deep.len() - 1);
    }
}
