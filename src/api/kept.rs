//! A Responses request whose server keeps part of the conversation, made whole again, so that it can be
//! sent to a server that never saw the rest.

use serde_json::{Value, json};

use super::{rebuild_body, template};

/// The body of a recorded Responses request with the whole prompt: the units that its template does not
/// name are those that the server kept, and they go before the input. A body that told the whole prompt
/// by itself comes back as it was sent.
pub fn whole_responses_body(body_template: &str, units: &[&str]) -> Result<Vec<u8>, String> {
    let body = rebuild_body(body_template, units)?;
    let named = template::named_units(body_template);
    let kept: Vec<&str> = units
        .iter()
        .enumerate()
        .filter(|(index, _)| !named.iter().any(|range| range.contains(index)))
        .map(|(_, text)| *text)
        .collect();
    if kept.is_empty() {
        return Ok(body);
    }
    let read = |json: &[u8]| {
        serde_json::from_slice::<Value>(json).map_err(|error| format!("not JSON: {error}"))
    };
    let mut body = read(&body)?;
    let mut input = Vec::new();
    for unit in kept {
        input.push(item(read(unit.as_bytes())?));
    }
    match body["input"].take() {
        Value::Array(items) => input.extend(items.into_iter().map(item)),
        Value::Null => {}
        said => input.push(item(said)),
    }
    body["input"] = input.into();
    if let Some(members) = body.as_object_mut() {
        members.remove("previous_response_id");
    }
    Ok(body.to_string().into_bytes())
}

/// What the user says in one string, as an item among others.
fn item(value: Value) -> Value {
    match value {
        Value::String(said) => json!({"role": "user", "content": said}),
        item => item,
    }
}
