//! What one request's stamps and counts amount to: TPOT, ITL, output speed, whether the output has the
//! length asked for.
//!
//! Pure; each figure is a function of columns of `requests`, so that it can be recomputed from the
//! table.

use crate::api::{Reply, ReplyBlock};
use crate::trace::record::{OutputLength, RequestRow, RequestStatus};

/// Time per output token after the first: from the first to the last chunk with output, over the
/// tokens but one. None below 2 tokens.
pub fn tpot_ms(ttft_ms: f64, last_token_ms: f64, completion_tokens: u64) -> Option<f64> {
    (completion_tokens >= 2).then(|| (last_token_ms - ttft_ms) / (completion_tokens - 1) as f64)
}

/// Inter-token latency of one request: the gaps between its output chunks over the tokens that the
/// chunks after the first carried, where the engine tells these; else its TPOT.
pub fn itl_ms(row: &RequestRow) -> Option<f64> {
    let Some(tokens) = tokens_after_first(row) else { return row.tpot_ms };
    (tokens > 0).then(|| row.chunk_gap_ms.iter().sum::<f64>() / tokens as f64)
}

/// Inter-token latency of each gap between chunks, with the number of tokens it holds for. Empty where
/// the engine does not tell the tokens of a chunk. A gap whose chunk brought no token of its own is
/// carried to the next one that did.
pub fn token_gaps(row: &RequestRow) -> Vec<(f64, u64)> {
    if tokens_after_first(row).is_none() {
        return Vec::new();
    }
    let mut gaps = Vec::with_capacity(row.chunk_gap_ms.len());
    let mut carried_ms = 0.0;
    for (gap_ms, tokens) in row.chunk_gap_ms.iter().zip(&row.chunk_tokens[1..]) {
        carried_ms += gap_ms;
        if *tokens > 0 {
            gaps.push((carried_ms / f64::from(*tokens), u64::from(*tokens)));
            carried_ms = 0.0;
        }
    }
    gaps
}

fn tokens_after_first(row: &RequestRow) -> Option<u64> {
    let known =
        !row.chunk_tokens.is_empty() && row.chunk_tokens.len() == row.chunk_gap_ms.len() + 1;
    known.then(|| row.chunk_tokens[1..].iter().map(|tokens| u64::from(*tokens)).sum())
}

/// A time from the send as a time from due: what whoever waited for the answer saw, a late send
/// included.
pub fn from_due_ms(row: &RequestRow, from_send_ms: Option<f64>) -> Option<f64> {
    from_send_ms.map(|ms| ms + row.lag_ms)
}

/// Output tokens per second of one request: the tokens but one, over the time from the first to the
/// last chunk with output. None below 2 tokens or where no time passed.
pub fn output_tokens_per_s(row: &RequestRow) -> Option<f64> {
    let span_s = (row.last_token_ms? - row.ttft_ms?) / 1e3;
    let tokens = row.completion_tokens.filter(|tokens| *tokens >= 2)?;
    (span_s > 0.0).then(|| (tokens - 1) as f64 / span_s)
}

/// Share of the responses' time above which output that is not seen makes their speed too good.
pub const UNSEEN_OUTPUT_LIMIT_PCT: f64 = 10.0;

/// Share of the responses' time that comes after their last chunk with output: where an engine gives
/// tokens without text there, TPOT and output speed count tokens whose time they do not see. None where
/// no response that was answered whole has both times.
pub fn unseen_output_pct<'a>(rows: impl IntoIterator<Item = &'a RequestRow>) -> Option<f64> {
    let answered = rows.into_iter().filter(|row| row.status == RequestStatus::Ok);
    let times = answered.filter_map(|row| Some((row.e2e_ms?, row.last_token_ms?)));
    let (whole_ms, seen_ms) =
        times.fold((0.0, 0.0), |sums, (whole, seen)| (sums.0 + whole, sums.1 + seen));
    (whole_ms > 0.0).then(|| (whole_ms - seen_ms) * 100.0 / whole_ms)
}

/// Prompt tokens computed, where usage tells both figures.
pub fn new_prompt_tokens(row: &RequestRow) -> Option<u64> {
    Some(row.prompt_tokens?.saturating_sub(row.cached_tokens?))
}

/// Why generation stopped, in one vocabulary for all APIs. Responses says only that it is through, so
/// there a call in the reply tells what for.
pub fn finish_reason(reply: &Reply) -> Option<String> {
    let said = reply.stop_reason.as_deref()?;
    let calls = || reply.blocks.iter().any(|block| matches!(block, ReplyBlock::ToolCall { .. }));
    Some(
        match said {
            "completed" if calls() => "tool_calls",
            "completed" | "end_turn" | "stop_sequence" => "stop",
            "max_tokens" | "max_output_tokens" => "length",
            "tool_use" | "function_call" => "tool_calls",
            "refusal" => "content_filter",
            other => other,
        }
        .to_owned(),
    )
}

/// The kind of a failure: its text before the first colon, like `http 500`, `connect` or `broken stream`.
pub fn failure_kind(row: &RequestRow) -> &str {
    let error = row.error.as_deref().unwrap_or("unknown");
    error.split(':').next().unwrap_or(error)
}

/// Whether the output has the length asked for, within min(5 % of the target, 50 tokens).
pub fn output_length(target: Option<u64>, completion_tokens: Option<u64>) -> OutputLength {
    let (Some(target), Some(came)) = (target, completion_tokens) else {
        return OutputLength::Unverified;
    };
    let tolerance = (target as f64 * 0.05).min(50.0);
    if target.abs_diff(came) as f64 <= tolerance {
        OutputLength::Ok
    } else if came < target {
        OutputLength::Short
    } else {
        OutputLength::Long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(chunk_gap_ms: &[f64], chunk_tokens: &[u32]) -> RequestRow {
        let tokens = u64::from(chunk_tokens.iter().sum::<u32>());
        let last_token_ms = 100.0 + chunk_gap_ms.iter().sum::<f64>();
        RequestRow {
            ttft_ms: Some(100.0),
            last_token_ms: Some(last_token_ms),
            tpot_ms: tpot_ms(100.0, last_token_ms, tokens),
            completion_tokens: Some(tokens),
            chunk_gap_ms: chunk_gap_ms.to_vec(),
            chunk_tokens: chunk_tokens.to_vec(),
            ..RequestRow::default()
        }
    }

    #[test]
    fn time_after_the_last_chunk_with_output_is_not_seen() {
        let times =
            |e2e_ms, last_token_ms| RequestRow { last_token_ms, e2e_ms, ..RequestRow::default() };
        let whole = [times(Some(1000.0), Some(900.0)), times(Some(3000.0), Some(2100.0))];
        assert_eq!(unseen_output_pct(&whole), Some(25.0));
        // What failed, and what had no output, says nothing.
        let failed = RequestRow { status: RequestStatus::Failed, ..times(Some(9e9), Some(1.0)) };
        let rows = [whole[0].clone(), failed, times(Some(9e9), None)];
        assert_eq!(unseen_output_pct(&rows), Some(10.0));
        assert_eq!(unseen_output_pct(&rows[1..]), None);
    }

    #[test]
    fn several_tokens_in_a_chunk_share_its_gap() {
        let three_chunks = row(&[40.0, 40.0], &[1, 4, 4]);
        assert_eq!(itl_ms(&three_chunks), Some(10.0));
        assert_eq!(token_gaps(&three_chunks), [(10.0, 4), (10.0, 4)]);
        assert_eq!(three_chunks.tpot_ms, Some(10.0));
        assert_eq!(output_tokens_per_s(&three_chunks), Some(100.0));
        // The first chunk's own tokens come with the prefill and cost no gap.
        assert_eq!(itl_ms(&row(&[40.0], &[5, 4])), Some(10.0));
        // A chunk without a token of its own (a byte of a longer character) passes its gap on.
        assert_eq!(token_gaps(&row(&[10.0, 10.0, 30.0], &[1, 0, 2, 1])), [(10.0, 2), (30.0, 1)]);
    }

    #[test]
    fn without_tokens_per_chunk_itl_is_tpot() {
        let unknown = RequestRow { chunk_tokens: Vec::new(), ..row(&[40.0, 40.0], &[1, 4, 4]) };
        assert_eq!(itl_ms(&unknown), Some(10.0));
        assert_eq!(token_gaps(&unknown), []);
    }

    #[test]
    fn every_api_ends_for_the_same_reasons() {
        let call =
            ReplyBlock::ToolCall { id: "c".into(), name: "ls".into(), arguments: "{}".into() };
        for (said, calls, expected) in [
            (Some("stop"), false, Some("stop")),
            (Some("tool_calls"), true, Some("tool_calls")),
            (Some("end_turn"), false, Some("stop")),
            (Some("tool_use"), true, Some("tool_calls")),
            (Some("max_tokens"), false, Some("length")),
            (Some("completed"), false, Some("stop")),
            (Some("completed"), true, Some("tool_calls")),
            (Some("max_output_tokens"), true, Some("length")),
            (Some("refusal"), false, Some("content_filter")),
            (Some("pause_turn"), false, Some("pause_turn")),
            (None, true, None),
        ] {
            let blocks = if calls { vec![call.clone()] } else { Vec::new() };
            let reply = Reply { blocks, stop_reason: said.map(str::to_owned), ..Reply::default() };
            assert_eq!(finish_reason(&reply).as_deref(), expected, "{said:?} {calls}");
        }
    }

    #[test]
    fn one_token_has_no_rate() {
        assert_eq!(tpot_ms(50.0, 50.0, 1), None);
        assert_eq!(tpot_ms(50.0, 80.0, 4), Some(10.0));
        assert_eq!(itl_ms(&row(&[], &[1])), None);
        assert_eq!(output_tokens_per_s(&row(&[], &[1])), None);
        assert_eq!(output_tokens_per_s(&row(&[0.0], &[1, 1])), None);
    }

    #[test]
    fn output_length_allows_five_percent_up_to_fifty_tokens() {
        let cases = [
            (Some(10), Some(10), OutputLength::Ok),
            (Some(10), Some(9), OutputLength::Short),
            (Some(10), Some(11), OutputLength::Long),
            (Some(20), Some(19), OutputLength::Ok),
            (Some(20), Some(18), OutputLength::Short),
            (Some(400), Some(420), OutputLength::Ok),
            (Some(400), Some(421), OutputLength::Long),
            (Some(4000), Some(3950), OutputLength::Ok),
            (Some(4000), Some(3949), OutputLength::Short),
            (None, Some(10), OutputLength::Unverified),
            (Some(10), None, OutputLength::Unverified),
        ];
        for (target, came, expected) in cases {
            assert_eq!(output_length(target, came), expected, "{target:?} {came:?}");
        }
    }
}
