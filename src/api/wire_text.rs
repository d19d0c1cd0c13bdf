//! Text in a response, read without copying where it has no escapes, and forgiving of its form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string; empty where the wire has null or something that is no text. A list of content parts is
/// the texts of its parts, one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WireText<'a>(Cow<'a, str>);

impl WireText<'_> {
    /// The text, where there is any.
    pub(super) fn filled(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(self.0.as_ref())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn into_owned(self) -> String {
        self.0.into_owned()
    }

    /// The text of its own, where there is any.
    pub(super) fn into_filled(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.into_owned())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(WireText)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut text = String::new();
        while let Some(part) = parts.next_element::<WireText<'de>>()? {
            text.push_str(part.as_str());
        }
        Ok(Cow::Owned(text))
    }

    /// A content part.
    fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Self::Value, A::Error> {
        let mut text = Cow::Borrowed("");
        while let Some(key) = part.next_key::<WireText<'de>>()? {
            if key.as_str() == "text" {
                text = part.next_value::<WireText<'de>>()?.0;
            } else {
                part.next_value::<IgnoredAny>()?;
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_forms() {
        let cases = [
            (r#""plain""#, "plain"),
            (r#""a\n\u00e9""#, "a\né"),
            ("null", ""),
            ("7", ""),
            ("-7", ""),
            ("1.5", ""),
            ("true", ""),
            ("[]", ""),
            (r#"["a",{"type":"text","text":"b"},{"type":"image","url":{"x":[1]}}]"#, "ab"),
        ];
        for (json, expected) in cases {
            let text: WireText<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(text.as_str(), expected, "{json}");
            let is_borrowed = matches!(text.0, Cow::Borrowed(_));
            assert_eq!(is_borrowed, !json.contains(['\\', '[']), "{json}");
        }
    }
}
