//! batchbench's manifests, a trajectory a line: counts, waits, and (version 2) blocks made of seeds.
//!
//! A field that is not known is refused, as its own reader does. Blocks are of any length, which block
//! hashes of one size cannot say: a request's are kept as they stand in `params`, and a replay goes by counts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::draft::{Drafts, Times, Tokens, TurnDraft};
use crate::trace::record::TurnKind;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trajectory {
    schema_version: u32,
    trajectory_id: String,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    start_after_ms: Option<f64>,
    requests: Vec<Request>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    output_tokens: u64,
    #[serde(default)]
    delay_after_ms: f64,
    #[serde(default)]
    reset_before: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overhead_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    seed: Value,
    tokens: u64,
    role: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    live: bool,
}

/// What an export of ours says in the metadata, which is free.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    session_id: Option<String>,
    parent_trajectory_id: Option<String>,
    kind: TurnKind,
    model: Option<String>,
    agent: Option<String>,
}

/// Reads one trajectory.
pub(super) fn trajectory(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let trajectory: Trajectory = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if !matches!(trajectory.schema_version, 1 | 2) {
        return Err(format!(
            "schema_version {} is not read; 1 and 2 are",
            trajectory.schema_version
        ));
    }
    let metadata: Metadata = trajectory
        .metadata
        .and_then(|value| serde_json::from_value(value).ok())
        .unwrap_or_default();
    let session_id = metadata.session_id.unwrap_or_else(|| trajectory.trajectory_id.clone());
    let mut expected: Option<u64> = None;
    for (index, request) in trajectory.requests.into_iter().enumerate() {
        let blocks: u64 = request.blocks.iter().map(|block| block.tokens).sum();
        let from_blocks = blocks + request.overhead_tokens.unwrap_or(0);
        let isl = request.prompt_tokens.or((!request.blocks.is_empty()).then_some(from_blocks));
        if let (Some(isl), Some(expected), false) = (isl, expected, request.reset_before)
            && isl < expected
        {
            return Err(format!(
                "request {index} has fewer prompt tokens ({isl}) than the turn before it leaves \
                 ({expected}) and no reset_before"
            ));
        }
        expected = isl.map(|isl| isl + request.output_tokens);
        drafts.turns.push(TurnDraft {
            session_id: session_id.clone(),
            parent_thread_id: metadata.parent_trajectory_id.clone(),
            kind: metadata.kind,
            model: metadata.model.clone(),
            agent: metadata.agent.clone(),
            thread_id: trajectory.trajectory_id.clone(),
            stream: request.stream.unwrap_or(true),
            times: Times {
                request: trajectory.start_after_ms.map(|ms| ms / 1e3),
                request_unseen: true,
                ..Times::default()
            },
            wait_after_ms: Some(request.delay_after_ms),
            tokens: Tokens { isl, osl: Some(request.output_tokens), ..Tokens::default() },
            params: Some(serde_json::json!({ "batchbench": request })),
            ..TurnDraft::default()
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_waits_and_blocks_are_read_and_what_is_not_known_is_refused() {
        let mut drafts = Drafts::default();
        let v1 = r#"{"schema_version":1,"trajectory_id":"a","metadata":{},"requests":[
            {"prompt_tokens":100,"output_tokens":10,"delay_after_ms":250},
            {"prompt_tokens":150,"output_tokens":5},
            {"prompt_tokens":40,"output_tokens":5,"reset_before":true}]}"#;
        trajectory(v1, &mut drafts).unwrap();
        let v2 = r#"{"schema_version":2,"trajectory_id":"b","start_after_ms":500,"requests":[
            {"output_tokens":7,"overhead_tokens":3,"blocks":[{"seed":"s","tokens":60,"role":"system"},
             {"seed":1,"tokens":5,"role":"user"}]}]}"#;
        trajectory(v2, &mut drafts).unwrap();
        let read: Vec<_> = drafts
            .turns
            .iter()
            .map(|turn| (turn.tokens.isl, turn.tokens.osl, turn.wait_after_ms, turn.times.request))
            .collect();
        assert_eq!(
            read,
            [
                (Some(100), Some(10), Some(250.0), None),
                (Some(150), Some(5), Some(0.0), None),
                (Some(40), Some(5), Some(0.0), None),
                (Some(68), Some(7), Some(0.0), Some(0.5)),
            ]
        );
        for (bad, told) in [
            (r#"{"schema_version":3,"trajectory_id":"a","requests":[]}"#, "schema_version 3"),
            (r#"{"schema_version":1,"trajectory_id":"a","requests":[],"extra":1}"#, "extra"),
            (
                r#"{"schema_version":1,"trajectory_id":"a","requests":[
                    {"prompt_tokens":100,"output_tokens":10},{"prompt_tokens":90,"output_tokens":1}]}"#,
                "no reset_before",
            ),
        ] {
            let error = trajectory(bad, &mut Drafts::default()).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
