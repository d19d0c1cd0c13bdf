//! Recorded prompts as Chat messages, for the formats that speak Chat alone.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::{Api, convert_request, list_elements, whole_responses_body};
use crate::error::Result;
use crate::trace::Run;
use crate::trace::record::{ServerHistory, TurnRow};

/// What reading prompts needs of a turn.
pub(super) const COLUMNS: &[&str] = &["body_template", "reply_blocks", "osl_text"];

/// A prompt in Chat form; of a recording in Chat the bytes as they were sent.
#[derive(Debug, Default)]
pub(super) struct ChatPrompt {
    pub(super) messages: Vec<Box<RawValue>>,
    pub(super) tools: Vec<Box<RawValue>>,
}

/// A turn's prompt as Chat; none where the run has no text of it, or not all of it, or one without roles.
pub(super) fn chat_prompt(run: &Run, turn: &TurnRow) -> Result<Option<ChatPrompt>> {
    let known = !turn.unit_hashes.is_empty() && !turn.body_template.is_empty();
    let whole = turn.server_history != Some(ServerHistory::Unknown);
    let Some(api) = Api::from_name(&turn.api).filter(|_| known && whole) else { return Ok(None) };
    let texts = turn.unit_hashes.iter().map(|hash| run.unit_text(hash));
    let texts = texts.collect::<Result<Vec<&str>>>()?;
    let body = match api {
        Api::Responses => whole_responses_body(&turn.body_template, &texts),
        _ => crate::api::rebuild_body(&turn.body_template, &texts),
    };
    // A body that cannot be rebuilt is one that was not recorded whole.
    let Ok(body) = body else { return Ok(None) };
    Ok(if api == Api::Chat { as_sent(&body) } else { converted(&body, api) })
}

fn as_sent(body: &[u8]) -> Option<ChatPrompt> {
    let raw = |name: &str| -> Option<Vec<Box<RawValue>>> {
        let elements = list_elements(body, name).ok()?;
        elements.into_iter().map(|text| RawValue::from_string(text.to_owned()).ok()).collect()
    };
    Some(ChatPrompt { messages: raw("messages")?, tools: raw("tools")? })
}

fn converted(body: &[u8], api: Api) -> Option<ChatPrompt> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let chat = convert_request(&body, api, Api::Chat)?;
    let raw = |name: &str| -> Option<Vec<Box<RawValue>>> {
        let list = chat.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().map(|value| serde_json::value::to_raw_value(value).ok()).collect()
    };
    Some(ChatPrompt { messages: raw("messages")?, tools: raw("tools")? })
}
