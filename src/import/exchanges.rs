//! Recordings of single exchanges: `ClawPerf`'s bodies and chunks, and the netpreme layout's lines.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::draft::{Drafts, PromptDraft, Times, Tokens, TurnDraft, calls_of};
use crate::api::{Api, ReplyDecoder, Unit, parse_request};
use crate::trace::Row;
use crate::trace::record::{EngineMetricsRow, Outcome, TurnKind};

#[derive(Debug, Deserialize)]
struct Claw {
    #[serde(default)]
    index: Option<u64>,
    request_body: Box<RawValue>,
    #[serde(default)]
    response_chunks: Vec<Value>,
    #[serde(default)]
    ttft_ms: Option<f64>,
    #[serde(default)]
    e2e_ms: Option<f64>,
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(default)]
    error: Option<String>,
}

/// An exchange of a `ClawPerf` recording; a file is one session.
pub(super) fn clawperf(json: &str, session: &str, drafts: &mut Drafts) -> Result<(), String> {
    let claw: Claw = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let body = match serde_json::from_str::<String>(claw.request_body.get()) {
        Ok(text) => text,
        Err(_) => claw.request_body.get().to_owned(),
    };
    let told: Value =
        serde_json::from_str(&body).map_err(|error| format!("request_body: {error}"))?;
    let api = api_of(&told);
    let parsed = parse_request(api, body.as_bytes()).map_err(|error| error.message)?;
    let reply = decode(api, &claw.response_chunks);
    let failed = claw.error.is_some() || claw.status_code.is_some_and(|status| status >= 400);
    let status = claw.status_code.filter(|status| *status > 0);
    drafts.turns.push(TurnDraft {
        session_id: session.to_owned(),
        thread_id: session.to_owned(),
        request_id: claw.index.map(|index| format!("{session}#{index}")),
        api: Some(api),
        model: parsed.model,
        stream: parsed.stream,
        prompt: PromptDraft::Units {
            conversation: drafts.conversations.len(),
            n: parsed.units.len(),
        },
        params: serde_json::from_str(&parsed.params).ok(),
        ttft_ms: claw.ttft_ms,
        e2e_ms: claw.e2e_ms,
        tokens: Tokens {
            isl: claw.input_tokens.or(reply.usage.prompt_tokens),
            cached: reply.usage.cached_tokens,
            osl: claw.output_tokens.or(reply.usage.completion_tokens),
            ..Tokens::default()
        },
        stop_reason: reply.stop_reason.clone(),
        calls: calls_of(&reply.blocks),
        reply: reply.blocks,
        http_status: status,
        outcome: match (failed, status) {
            (false, _) => Outcome::Ok,
            (true, Some(status)) if status >= 400 => Outcome::HttpError,
            (true, _) => Outcome::UpstreamError,
        },
        error: claw.error,
        ..TurnDraft::default()
    });
    drafts.conversations.push(parsed.units.into_iter().map(Unit::into_owned).collect());
    Ok(())
}

fn api_of(body: &Value) -> Api {
    if body.get("input").is_some() {
        Api::Responses
    } else if body.get("messages").is_none() {
        Api::Completions
    } else if body.get("system").is_some() || body.get("max_tokens_to_sample").is_some() {
        Api::Messages
    } else {
        Api::Chat
    }
}

/// Chunks are lines of the stream, or the events' data.
fn decode(api: Api, chunks: &[Value]) -> crate::api::Reply {
    let mut decoder = ReplyDecoder::new(api);
    for chunk in chunks {
        let text = match chunk {
            Value::String(text) => text.clone(),
            other => match other.get("data").or_else(|| other.get("chunk")) {
                Some(Value::String(text)) => text.clone(),
                Some(data) => data.to_string(),
                None => other.to_string(),
            },
        };
        let is_line = text.starts_with("data:") || text.starts_with("event:");
        let event = if is_line { text } else { format!("data: {text}") };
        decoder.feed(event.as_bytes());
        decoder.feed(b"\n\n");
    }
    decoder.finish()
}

#[derive(Debug, Deserialize)]
struct TurnLine {
    request_time: f64,
    #[serde(default)]
    tool_exec_ms: Option<f64>,
    #[serde(default)]
    isl_new_text: String,
    #[serde(default)]
    osl_text: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    thread_id: Option<String>,
    #[serde(default)]
    parent_thread_id: Option<String>,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(default)]
    kind: TurnKind,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    outcome: Outcome,
    #[serde(default)]
    isl: Option<u64>,
    #[serde(default)]
    isl_new: Option<u64>,
    #[serde(default)]
    osl: Option<u64>,
    #[serde(default)]
    ttft_ms: Option<f64>,
    #[serde(default)]
    e2e_ms: Option<f64>,
}

/// A line of `turn_traces.jsonl` or `engine_metrics.jsonl`. `session` is the folder's name.
pub(super) fn netpreme(json: &str, session: &str, drafts: &mut Drafts) -> Result<(), String> {
    if json.contains("\"kv_cache_usage_pct_peak\"") && !json.contains("\"request_time\"") {
        return engine_line(json, drafts);
    }
    let line: TurnLine = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let session_id = line.session_id.unwrap_or_else(|| session.to_owned());
    drafts.turns.push(TurnDraft {
        thread_id: line.thread_id.unwrap_or_else(|| session_id.clone()),
        session_id,
        parent_thread_id: line.parent_thread_id,
        request_id: line.request_id,
        kind: line.kind,
        model: line.model,
        stream: line.ttft_ms.is_some(),
        times: Times {
            request: Some(line.request_time),
            end: line.e2e_ms.map(|ms| line.request_time + ms / 1e3),
            ..Times::default()
        },
        ttft_ms: line.ttft_ms,
        e2e_ms: line.e2e_ms,
        wait_ms: line.tool_exec_ms,
        tokens: Tokens {
            isl: line.isl,
            cached: line.isl.zip(line.isl_new).map(|(isl, new)| isl.saturating_sub(new)),
            osl: line.osl,
            ..Tokens::default()
        },
        texts: Some((line.isl_new_text, line.osl_text)),
        outcome: line.outcome,
        ..TurnDraft::default()
    });
    Ok(())
}

fn engine_line(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let mut line: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    // Counts per reason are JSON text in the table.
    if let Some(reasons) = line.get_mut("stop_reason")
        && !reasons.is_string()
    {
        *reasons = Value::String(reasons.to_string());
    }
    if let Some(object) = line.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    let row: EngineMetricsRow = serde_json::from_value(line).map_err(|error| error.to_string())?;
    drafts.rows.push(Row::from(row));
    Ok(())
}
