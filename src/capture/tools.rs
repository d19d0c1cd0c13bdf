//! Tool calls from the reply that made them to the request that brings their result.
//!
//! A call becomes a row when its result arrives in its thread, or with nulls when it is given up: at
//! the end, when its thread is forgotten, or when too many wait.

use std::collections::{HashMap, VecDeque};

use crate::api::{ReplyBlock, ToolResult};
use crate::clock::unix_seconds;
use crate::trace::record::{ToolCallRow, TurnRow};
use crate::trace::writer::RowSender;

/// Calls of one thread that may wait for results; older ones are given up.
const MAX_WAITING: usize = 1024;

/// Tool calls whose results have not come yet, by thread.
#[derive(Debug)]
pub(super) struct PendingCalls {
    run_id: String,
    rows: RowSender,
    waiting: HashMap<String, VecDeque<ToolCallRow>>,
}

impl PendingCalls {
    pub(super) fn new(run_id: String, rows: RowSender) -> Self {
        Self { run_id, rows, waiting: HashMap::new() }
    }

    /// Takes in the calls of a turn's reply.
    pub(super) fn add(&mut self, turn: &TurnRow, blocks: &[ReplyBlock]) {
        let calls = blocks.iter().filter_map(|block| match block {
            ReplyBlock::ToolCall { id, name, arguments } => Some((id, name, arguments)),
            _ => None,
        });
        let calls: Vec<ToolCallRow> = calls
            .enumerate()
            .map(|(index, (id, name, arguments))| ToolCallRow {
                run_id: self.run_id.clone(),
                session_id: turn.session_id.clone(),
                thread_id: turn.thread_id.clone(),
                turn: turn.turn,
                request_id: turn.request_id.clone(),
                index: index as u32,
                call_id: id.clone(),
                name: name.clone(),
                argument_bytes: arguments.len() as u64,
                arguments: arguments.clone(),
                emitted_time: turn.response_end_time.unwrap_or(turn.request_time),
                ..ToolCallRow::default()
            })
            .collect();
        if calls.is_empty() {
            return;
        }
        let waiting = self.waiting.entry(turn.thread_id.clone()).or_default();
        waiting.extend(calls);
        let surplus = waiting.len().saturating_sub(MAX_WAITING);
        for call in waiting.drain(..surplus) {
            self.rows.send_blocking(call);
        }
    }

    /// Writes the calls of a thread whose results a request brings. The agent's own times belong to
    /// the calls by the tool's name, in their order.
    pub(super) fn resolve(
        &mut self,
        thread_id: &str,
        results: &[ToolResult],
        own_ms: &VecDeque<(String, f64)>,
        arrived_ns: i64,
    ) {
        let Some(waiting) = self.waiting.get_mut(thread_id) else { return };
        let mut own_ms = own_ms.clone();
        let mut left = VecDeque::new();
        for mut call in waiting.drain(..) {
            let Some(result) = results.iter().find(|result| result.call_id == call.call_id) else {
                left.push_back(call);
                continue;
            };
            let result_time = unix_seconds(arrived_ns);
            call.result_time = Some(result_time);
            call.wire_ms = Some(((result_time - call.emitted_time) * 1000.0).max(0.0));
            call.result_bytes = Some(result.result_bytes);
            call.is_error = result.is_error;
            let own = own_ms.iter().position(|(name, _)| *name == call.name);
            call.own_ms = own.and_then(|index| own_ms.remove(index)).map(|(_, ms)| ms);
            self.rows.send_blocking(call);
        }
        if left.is_empty() {
            self.waiting.remove(thread_id);
        } else {
            *waiting = left;
        }
    }

    /// Writes the calls of a thread without results.
    pub(super) fn give_up(&mut self, thread_id: &str) {
        for call in self.waiting.remove(thread_id).into_iter().flatten() {
            self.rows.send_blocking(call);
        }
    }

    /// Writes all calls that still wait, without results.
    pub(super) fn give_up_all(&mut self) {
        let mut left: Vec<ToolCallRow> =
            self.waiting.drain().flat_map(|(_, calls)| calls).collect();
        left.sort_by(|a, b| {
            (a.emitted_time, &a.thread_id, a.index)
                .partial_cmp(&(b.emitted_time, &b.thread_id, b.index))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for call in left {
            self.rows.send_blocking(call);
        }
    }
}
