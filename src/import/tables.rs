//! Traces as CSV: `TraceLab`'s replayer workloads and `BurstGPT`.

use csv::{ReaderBuilder, StringRecord};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::draft::{Drafts, Times, Tokens, TurnDraft};
use super::hashed::Name;

#[derive(Debug, Deserialize)]
struct Workload {
    session_id: Name,
    #[serde(default)]
    arrival_time: Option<f64>,
    prefix_len: u64,
    input_len: u64,
    output_len: u64,
    #[serde(default)]
    tool_wait_after_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Burst {
    #[serde(rename = "Timestamp")]
    timestamp: f64,
    #[serde(rename = "Model", default)]
    model: Option<String>,
    #[serde(rename = "Request tokens")]
    request_tokens: u64,
    #[serde(rename = "Response tokens")]
    response_tokens: u64,
    #[serde(rename = "Session ID", default)]
    session_id: Option<String>,
    #[serde(rename = "Elapsed time", default)]
    elapsed_s: Option<f64>,
}

/// A file's column names.
pub(super) fn header(line: &str) -> Option<StringRecord> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    reader.records().next()?.ok()
}

fn read<T: DeserializeOwned>(line: &str, header: &StringRecord) -> Result<T, String> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let record = reader.records().next().ok_or("no columns")?.map_err(|error| error.to_string())?;
    if record.len() != header.len() {
        return Err(format!("{} columns where the header names {}", record.len(), header.len()));
    }
    record.deserialize(Some(header)).map_err(|error| error.to_string())
}

/// A round of a workload: its prompt is what the session has before it and what comes in.
pub(super) fn workload(
    line: &str,
    header: &StringRecord,
    drafts: &mut Drafts,
) -> Result<(), String> {
    workload_turn(&read(line, header)?, drafts);
    Ok(())
}

/// The same where the round is a row of a table.
pub(super) fn workload_row(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let row: Workload = serde_json::from_str(json).map_err(|error| error.to_string())?;
    workload_turn(&row, drafts);
    Ok(())
}

fn workload_turn(row: &Workload, drafts: &mut Drafts) {
    let session_id = row.session_id.to_string();
    drafts.turns.push(TurnDraft {
        thread_id: session_id.clone(),
        session_id,
        // A session's arrival; when its later rounds come follows from waits and the engine.
        times: Times {
            request: row.arrival_time.map(|ms| ms / 1e3),
            request_unseen: true,
            ..Times::default()
        },
        wait_after_ms: row.tool_wait_after_ms,
        tokens: Tokens {
            isl: Some(row.prefix_len + row.input_len),
            cached: Some(row.prefix_len),
            osl: Some(row.output_len),
            ..Tokens::default()
        },
        ..TurnDraft::default()
    });
}

/// A request of `BurstGPT`; only newer files tell sessions and how long answers took.
pub(super) fn burst(
    line: &str,
    header: &StringRecord,
    name: &str,
    drafts: &mut Drafts,
) -> Result<(), String> {
    let row: Burst = read(line, header)?;
    let session_id = row.session_id.filter(|id| !id.is_empty()).unwrap_or_else(|| name.to_owned());
    drafts.turns.push(TurnDraft {
        thread_id: session_id.clone(),
        session_id,
        model: row.model,
        times: Times {
            request: Some(row.timestamp),
            end: row.elapsed_s.map(|seconds| row.timestamp + seconds),
            ..Times::default()
        },
        // An answer without tokens is a failure of the service there.
        tokens: Tokens {
            isl: Some(row.request_tokens),
            osl: Some(row.response_tokens),
            ..Tokens::default()
        },
        ..TurnDraft::default()
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let mut drafts = Drafts::default();
        let names =
            header("session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms")
                .unwrap();
        workload("7,1,18333,13570,15950,28", &names, &mut drafts).unwrap();
        let names =
            header("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type").unwrap();
        burst("5.5,ChatGPT,472,18,490,Conversation log", &names, "burst:2", &mut drafts).unwrap();
        let read: Vec<_> = drafts
            .turns
            .iter()
            .map(|turn| {
                (turn.session_id.as_str(), turn.tokens.isl, turn.tokens.osl, turn.times.request)
            })
            .collect();
        assert_eq!(
            read,
            [("7", Some(31_903), Some(15_950), None), ("burst:2", Some(472), Some(18), Some(5.5))]
        );
        for (line, told) in [("1,2,3", "3 columns"), ("x,GPT,-1,18,490,log", "invalid")] {
            let error = burst(line, &names, "n", &mut drafts).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
