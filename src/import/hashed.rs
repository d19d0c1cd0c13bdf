//! Traces of requests as lengths and block hashes: Mooncake, Bailian, and Mooncake for agents.
//!
//! Equal hashes are equal blocks after equal blocks, within one file. Times count from the trace's start.

use serde::Deserialize;

use super::draft::{CallDraft, Chain, Drafts, PromptDraft, Times, Tokens, TurnDraft};
use super::format::Format;
use super::links::Links;

/// The sizes of blocks that are known: Mooncake's, Bailian's, and what others use.
const SIZES: [u32; 6] = [512, 16, 64, 128, 256, 32];

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default)]
    timestamp: Option<f64>,
    input_length: u64,
    #[serde(default)]
    output_length: Option<u64>,
    #[serde(default)]
    hash_ids: Option<Vec<u64>>,
    #[serde(default)]
    chat_id: Option<i64>,
    #[serde(default)]
    parent_chat_id: Option<i64>,
    #[serde(default)]
    request_id: Option<Name>,
    #[serde(default)]
    session_id: Option<Name>,
    #[serde(default)]
    tool_wait_ms: Option<f64>,
    #[serde(default)]
    delay: Option<f64>,
    #[serde(default)]
    wait_for: Vec<String>,
    #[serde(default)]
    tool_events: Vec<ToolEvent>,
}

/// A name or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Name {
    Text(String),
    Number(i64),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A tool that ran before a request: a call of the turn before it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolEvent {
    #[serde(alias = "tool_name", alias = "name", alias = "tool_class")]
    tool: String,
    #[serde(alias = "id")]
    tool_call_id: Option<String>,
    #[serde(alias = "started_at_unix_ms")]
    start_ms: Option<f64>,
    #[serde(alias = "ended_at_unix_ms")]
    end_ms: Option<f64>,
    duration_ms: Option<f64>,
    status: Option<String>,
    output_bytes: Option<u64>,
}

/// Reads one row. `file` tells hashes of this file from those of others.
pub(super) fn row(
    json: &str,
    place: (&str, u64),
    format: Format,
    block_size: u32,
    drafts: &mut Drafts,
) -> Result<(), String> {
    let request: Request = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let (file, line) = place;
    let own = format!("{file}:{line}");
    let seconds = match format {
        // Bailian's clock counts seconds, Mooncake's milliseconds.
        Format::Bailian => request.timestamp,
        _ => request.timestamp.map(|ms| ms / 1e3),
    };
    let session_id = match (&request.session_id, request.chat_id) {
        (Some(session), _) => session.to_string(),
        (None, Some(chat)) => format!("{file}:{chat}"),
        (None, None) => own,
    };
    let chain = request.chat_id.map(|chat| Chain {
        own: format!("{file}:{chat}"),
        goes_on_from: request.parent_chat_id.filter(|id| *id >= 0).map(|id| format!("{file}:{id}")),
    });
    let prompt = match request.hash_ids {
        Some(ids) => PromptDraft::Blocks {
            hashes: ids.iter().map(|id| format!("{file}:{id}")).collect(),
            size: block_size,
        },
        None => PromptDraft::Counts,
    };
    let links = request.request_id.as_ref().map(|id| Links {
        own: id.to_string(),
        waits_for: request.wait_for,
        calls_before: request.tool_events.into_iter().map(call).collect(),
    });
    drafts.turns.push(TurnDraft {
        thread_id: session_id.clone(),
        session_id,
        chain,
        request_id: request.request_id.map(|id| id.to_string()),
        prompt,
        times: Times { request: seconds, ..Times::default() },
        // The wait is both, one after the other.
        wait_ms: match (request.tool_wait_ms, request.delay) {
            (None, None) => None,
            (tools, rest) => Some(tools.unwrap_or_default() + rest.unwrap_or_default()),
        },
        tokens: Tokens {
            isl: Some(request.input_length),
            osl: request.output_length,
            ..Tokens::default()
        },
        links,
        ..TurnDraft::default()
    });
    Ok(())
}

fn call(event: ToolEvent) -> CallDraft {
    let span_ms = event.start_ms.zip(event.end_ms).map(|(start, end)| end - start);
    CallDraft {
        id: event.tool_call_id.unwrap_or_default(),
        name: event.tool,
        wall_ms: event.duration_ms.or(span_ms),
        result_bytes: event.output_bytes,
        is_error: match event.status.as_deref() {
            Some("succeeded" | "success" | "ok") => Some(false),
            Some("error" | "failed") => Some(true),
            _ => None,
        },
        ..CallDraft::default()
    }
}

/// The size of the blocks, told by lengths and numbers of hashes: the first known size that fits all.
pub(super) fn block_size<'a>(rows: impl Iterator<Item = &'a str>) -> Option<u32> {
    let lengths: Vec<(u64, u64)> = rows
        .filter_map(|row| serde_json::from_str::<Request>(row).ok())
        .filter_map(|request| Some((request.input_length, request.hash_ids?.len() as u64)))
        .filter(|(_, blocks)| *blocks > 0)
        .collect();
    // A last block that is not full may have a hash or none.
    let fits = |size: u64| {
        let fit = |(length, blocks): &(u64, u64)| {
            *blocks == length.div_ceil(size) || *blocks == (length / size).max(1)
        };
        lengths.iter().all(fit)
    };
    (!lengths.is_empty()).then_some(())?;
    SIZES.into_iter().find(|size| fits(u64::from(*size)))
}

#[cfg(test)]
mod tests {
    use super::block_size;

    #[test]
    fn the_size_of_blocks_follows_from_lengths_and_hashes() {
        let row = |length: u64, n: u64| {
            let ids: Vec<u64> = (0..n).collect();
            format!(r#"{{"timestamp":0,"input_length":{length},"hash_ids":{ids:?}}}"#)
        };
        for (rows, size) in [
            (vec![row(6755, 14), row(7319, 15), row(2287, 5)], Some(512)),
            (vec![row(100, 7), row(33, 3)], Some(16)),
            (vec![row(100, 2), row(640, 10)], Some(64)),
            (vec![row(100, 50)], None),
            (vec![], None),
        ] {
            assert_eq!(block_size(rows.iter().map(String::as_str)), size, "{rows:?}");
        }
    }
}
