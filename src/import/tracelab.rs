//! `TraceLab`'s rows, one round of a session each: counts and times, no text.

use std::borrow::Cow;

use serde::Deserialize;

use super::draft::{CallDraft, Drafts, Times, Tokens, TurnDraft};
use super::times::unix_of;

#[derive(Debug, Deserialize)]
struct Round<'a> {
    #[serde(borrow, default)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow, default)]
    round_id: Option<Cow<'a, str>>,
    #[serde(default)]
    round_index: Option<u64>,
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    input_tokens_total: Option<u64>,
    #[serde(default)]
    prefix_tokens: Option<u64>,
    #[serde(default)]
    claude_cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    reasoning_output_tokens: Option<u64>,
    #[serde(borrow, default)]
    timing_events: Vec<TimingEvent<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tool<'a>>,
    /// Of rows that are made up, which say so.
    #[serde(default)]
    synthetic: bool,
}

#[derive(Debug, Deserialize)]
struct TimingEvent<'a> {
    #[serde(borrow, default)]
    event_type: Cow<'a, str>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default)]
    tool_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    emitted_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result_at: Option<Cow<'a, str>>,
    #[serde(default)]
    input_chars: Option<u64>,
    #[serde(default)]
    result_chars: Option<u64>,
    #[serde(default)]
    tool_wall_latency_ms: Option<f64>,
    #[serde(default)]
    tool_internal_latency_ms: Option<f64>,
    #[serde(default)]
    is_error: Option<bool>,
}

/// Reads one row.
pub(super) fn row(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let round: Round<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let session_id = round.session_id.into_owned();
    drafts.turns.push(TurnDraft {
        thread_id: session_id.clone(),
        // Natural keys are not unique, so nothing is told apart by them.
        request_id: round.round_id.map(|id| match round.round_index {
            Some(index) => format!("{id}#{index}"),
            None => id.into_owned(),
        }),
        agent: agent(&round.provider),
        model: round.model.map(Cow::into_owned),
        times: times(&round.timing_events)?,
        tokens: Tokens {
            isl: round.input_tokens_total,
            cached: round.prefix_tokens,
            cache_write: round.claude_cache_creation_input_tokens,
            osl: round.output_tokens,
            reasoning: round.reasoning_output_tokens,
        },
        is_synthetic: round.synthetic,
        calls: round.tools.into_iter().map(call).collect::<Result<_, _>>()?,
        session_id,
        ..TurnDraft::default()
    });
    Ok(())
}

fn agent(provider: &str) -> Option<String> {
    match provider {
        "" => None,
        "claude" => Some("claude-code".to_owned()),
        other => Some(other.to_owned()),
    }
}

/// The request is made once its last input is there; the last output ends it. When the first token came is
/// not told: an event is stamped when its block is complete.
fn times(events: &[TimingEvent<'_>]) -> Result<Times, String> {
    let (mut asked, mut begun, mut end) = (None::<f64>, None::<f64>, None::<f64>);
    for event in events {
        let Some(time) = time(event.timestamp.as_deref())? else { continue };
        if matches!(event.event_type.as_ref(), "user_message" | "tool_result") {
            // What comes in after the first output belongs to the next request.
            if begun.is_none() {
                asked = Some(asked.map_or(time, |known| known.max(time)));
            }
        } else {
            begun.get_or_insert(time);
            end = Some(end.map_or(time, |known| known.max(time)));
        }
    }
    Ok(Times { request: asked.or(begun), request_unseen: asked.is_none(), end, ..Times::default() })
}

fn time(text: Option<&str>) -> Result<Option<f64>, String> {
    text.map(|text| unix_of(text).ok_or_else(|| format!("no time: {text:?}"))).transpose()
}

fn call(tool: Tool<'_>) -> Result<CallDraft, String> {
    Ok(CallDraft {
        id: tool.tool_call_id.map(Cow::into_owned).unwrap_or_default(),
        name: tool.tool_name.map(Cow::into_owned).unwrap_or_default(),
        arguments: String::new(),
        argument_bytes: tool.input_chars,
        emitted: time(tool.emitted_at.as_deref())?,
        result: time(tool.result_at.as_deref())?,
        wall_ms: tool.tool_wall_latency_ms,
        own_ms: tool.tool_internal_latency_ms,
        result_bytes: tool.result_chars,
        is_error: tool.is_error,
    })
}
