//! Reading and replacing the elements of a body's top-level list without touching its other bytes.

use super::scan::{self, Span};

/// The elements of the top-level list `name`, as they stand in the body; empty where there is none.
pub fn list_elements<'a>(body: &'a [u8], name: &str) -> Result<Vec<&'a str>, String> {
    let text = text_of(body)?;
    let Some((_, spans)) = find(text, name)? else { return Ok(Vec::new()) };
    Ok(spans.into_iter().map(|span| &text[span]).collect())
}

/// The body with the elements of its top-level list `name` replaced by others.
pub fn replace_elements<T: AsRef<str>>(
    body: &[u8],
    name: &str,
    elements: &[T],
) -> Result<Vec<u8>, String> {
    let text = text_of(body)?;
    let (list, _) = find(text, name)?.ok_or_else(|| format!("body has no list `{name}`"))?;
    let size = elements.iter().map(|element| element.as_ref().len() + 1).sum::<usize>();
    let mut replaced = Vec::with_capacity(text.len() - list.len() + size + 2);
    replaced.extend_from_slice(&body[..list.start]);
    replaced.push(b'[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            replaced.push(b',');
        }
        replaced.extend_from_slice(element.as_ref().as_bytes());
    }
    replaced.push(b']');
    replaced.extend_from_slice(&body[list.end..]);
    Ok(replaced)
}

fn text_of(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| format!("body is not UTF-8: {error}"))
}

/// Where the list lies, and where its elements do.
fn find(text: &str, name: &str) -> Result<Option<(Span, Vec<Span>)>, String> {
    let (members, _) = scan::members(text, 0).ok_or("body is not a JSON object")?;
    let Some(member) = members.into_iter().find(|member| member.is_named(text, name)) else {
        return Ok(None);
    };
    let elements = member.elements(text).ok_or_else(|| format!("`{name}` is not a list"))?;
    Ok(Some((member.value, elements)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_and_replaced_in_place() {
        let body = br#"{ "a":1, "messages" : [ {"x":"]"} , 2 ],"z":[0]}"#;
        assert_eq!(list_elements(body, "messages").unwrap(), [r#"{"x":"]"}"#, "2"]);
        let replaced = replace_elements(body, "messages", &["1", "{}"]).unwrap();
        assert_eq!(replaced, br#"{ "a":1, "messages" : [1,{}],"z":[0]}"#);
        assert_eq!(list_elements(br#"{"a":[]}"#, "a").unwrap(), Vec::<&str>::new());
        assert_eq!(list_elements(b"{}", "messages").unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn what_holds_no_list_is_refused() {
        for (body, expected) in [
            (&b"[]"[..], "body is not a JSON object"),
            (br#"{"messages":"x"}"#, "`messages` is not a list"),
            (b"\xff", "body is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"),
        ] {
            assert_eq!(list_elements(body, "messages").unwrap_err(), expected);
        }
        assert_eq!(
            replace_elements::<&str>(b"{}", "messages", &[]).unwrap_err(),
            "body has no list `messages`"
        );
    }
}
