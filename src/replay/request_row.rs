//! What an exchange says of its request, as columns of `requests`, whoever sent it: a replay or a live agent.
//!
//! Pure. Whose request it was, and what was planned for it, is added by the caller.

use super::client::Exchange;
use super::measure::{finish_reason, output_length, tpot_ms};
use crate::clock::elapsed_ms;
use crate::trace::record::{RequestRow, RequestStatus};

/// The columns that follow from stamps, usage and reply.
pub(super) fn request_row(
    due_ns: i64,
    anchor_ns: i64,
    target_output_tokens: Option<u64>,
    exchange: Exchange,
) -> RequestRow {
    let since_sent = |at_ns: i64| elapsed_ms(exchange.sent_ns, at_ns);
    let received = exchange.received;
    let usage = received.reply.usage;
    let ttft_ms = received.first_output_ns.map(since_sent);
    let last_token_ms = received.last_output_ns.map(since_sent);
    let status = match (&exchange.failure, exchange.cancelled) {
        (_, true) => RequestStatus::Cancelled,
        (Some(_), false) => RequestStatus::Failed,
        (None, false) => RequestStatus::Ok,
    };
    RequestRow {
        due_at_ms: elapsed_ms(anchor_ns, due_ns),
        sent_at_ms: elapsed_ms(anchor_ns, exchange.sent_ns),
        lag_ms: elapsed_ms(due_ns, exchange.sent_ns),
        ttft_ms,
        last_token_ms,
        e2e_ms: Some(since_sent(exchange.end_ns)),
        tpot_ms: ttft_ms
            .zip(last_token_ms)
            .zip(usage.completion_tokens)
            .and_then(|((first_ms, last_ms), tokens)| tpot_ms(first_ms, last_ms, tokens)),
        ttft_reasoning_ms: received.first_reasoning_ns.map(since_sent),
        ttft_visible_ms: received.first_visible_ns.map(since_sent),
        chunk_gap_ms: received.chunk_gap_ms,
        chunk_tokens: received.chunk_tokens,
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        cached_tokens: usage.cached_tokens,
        target_output_tokens,
        output_length: output_length(target_output_tokens, usage.completion_tokens),
        attempts: exchange.attempts.len() as u32,
        attempt_log: exchange.attempts,
        status,
        error: exchange.failure.map(|failure| failure.text),
        http_status: exchange.http_status,
        finish_reason: finish_reason(&received.reply),
        stop_reason: received.reply.stop_reason,
        ..RequestRow::default()
    }
}
