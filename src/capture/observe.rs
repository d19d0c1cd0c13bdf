//! What a finished exchange was: read on a thread of its own, after the stream ended, into rows.
//!
//! No byte waits for this thread. Which conversation a request continues is `lineage`'s to say, what
//! the bytes mean is `api`'s; here the two are put together with the stamps.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use http::HeaderMap;

use super::agent::AgentHints;
use super::buffers::Lent;
use super::content::ContentDecoder;
use super::exchange::{Copied, Exchange, Message, Queue};
use super::kept::KeptResponses;
use super::lineage::{AttemptEnd, Lineage, Place, Seen};
use super::redaction::Redaction;
use super::response::{Response, read_response};
use super::stats::Counters;
use super::tools::PendingCalls;
use crate::api::{
    Api, ContentHash, Kept, ParsedRequest, Reply, ReplyBlock, RequestReader, Unit,
    put_before_messages, request,
};
use crate::background;
use crate::clock::{elapsed_ms, unix_seconds};
use crate::error::{Error, Result};
use crate::http::headers::masked;
use crate::trace::record::{Outcome, ServerHistory, TurnRow, UnitRow};
use crate::trace::writer::RowSender;

/// Threads that lineage remembers: more than any run has at work at once, and bounded.
const MAX_THREADS: usize = 20_000;
/// What the reader of requests remembers of units: those of a thousand sessions of 300 units each.
const KNOWN_UNITS_BYTES: usize = 192 << 20;

/// Turns ended exchanges into rows.
#[derive(Debug)]
pub(super) struct Observer {
    run_id: String,
    limit_bytes: u64,
    rows: RowSender,
    counters: Arc<Counters>,
    lineage: Lineage,
    pending: PendingCalls,
    kept: KeptResponses,
    redaction: Option<Redaction>,
    reader: RequestReader,
}

/// The request side of an exchange, read.
struct RequestRead<'a> {
    parsed: ParsedRequest<'a>,
    body: ContentHash,
    note: Option<String>,
    server_history: Option<ServerHistory>,
}

/// A body without its content coding.
enum Decoded {
    AsItCame(Lent),
    Own(Vec<u8>),
}

impl Decoded {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::AsItCame(body) => body.into_bytes(),
            Self::Own(body) => body,
        }
    }
}

impl Deref for Decoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::AsItCame(body) => body,
            Self::Own(body) => body,
        }
    }
}

impl<'a> RequestRead<'a> {
    fn new(parsed: ParsedRequest<'a>, body: ContentHash, note: Option<String>) -> Self {
        Self { parsed, body, note, server_history: None }
    }
}

impl Observer {
    pub(super) fn new(
        run_id: String,
        limit_bytes: u64,
        rows: RowSender,
        counters: &Arc<Counters>,
        redaction: Option<Redaction>,
    ) -> Self {
        Self {
            pending: PendingCalls::new(run_id.clone(), rows.clone()),
            run_id,
            limit_bytes,
            rows,
            counters: Arc::clone(counters),
            lineage: Lineage::new(MAX_THREADS),
            kept: KeptResponses::default(),
            redaction,
            reader: RequestReader::new(KNOWN_UNITS_BYTES),
        }
    }

    /// Starts the thread. It ends when told to, or when nobody is left to tell it anything.
    pub(super) fn spawn(
        mut self,
        receiver: Receiver<Message>,
        queue: &Arc<Queue>,
    ) -> Result<JoinHandle<()>> {
        // Only weakly: the queue must close when the byte path is gone.
        let queue = Arc::downgrade(queue);
        std::thread::Builder::new()
            .name("observe".to_owned())
            .spawn(move || {
                background::yield_to_others();
                while let Ok(Message::Ended(exchange, size)) = receiver.recv() {
                    let queue = queue.upgrade();
                    background::may_rest(queue.as_ref().is_some_and(|queue| queue.keeps_up()));
                    self.observe(*exchange);
                    if let Some(queue) = queue {
                        queue.done(size);
                    }
                    background::rest();
                }
                self.pending.give_up_all();
            })
            .map_err(|error| Error::Internal(format!("no thread for the observer: {error}")))
    }

    fn observe(&mut self, mut exchange: Exchange) {
        let mut hints = AgentHints::of(&exchange.headers);
        if let Some(redaction) = &mut self.redaction {
            redaction.names(&mut exchange.session, &mut exchange.path, &mut hints);
        }
        let body = self.request_body(&mut exchange);
        let mut request = self.read_request(&exchange, &body);
        self.follow_kept(&mut request);
        background::rest();
        let mut response = read_response(&mut exchange, self.limit_bytes);
        background::rest();
        if let Some(redaction) = &mut self.redaction {
            redaction.response(&mut response);
        }
        let is_local = is_local(&exchange);
        if is_local {
            response.is_no_engines();
        }
        let is_whole = request.server_history != Some(ServerHistory::Unknown);
        if is_whole && !is_local && response.outcome == Outcome::Ok {
            self.kept.remember(&request.parsed, &response.reply);
        }
        if response.outcome == Outcome::ClientCancelled {
            self.counters.client_cancelled();
        }
        let place = self.place(&exchange, &hints, &request, &response);
        background::rest();
        let request_id = format!("req-{}", exchange.number);

        for index in &place.new_units {
            self.rows.send_blocking(UnitRow::from(&request.parsed.units[*index]));
        }
        let own_ms = hints.tool_durations();
        let results = &request.parsed.tool_results;
        self.pending.resolve(&place.thread_id, results, &own_ms, exchange.arrived_ns);
        let row = self.turn_row(&exchange, &hints, request, &response, &place, request_id);
        self.pending.add(&row, &response.reply.blocks);
        for thread in &place.forgotten {
            self.pending.give_up(thread);
        }
        self.counters.turn(&row, self.lineage.sessions_opened(), self.lineage.threads_opened());
        self.rows.send_blocking(row);
    }

    /// Puts what the server keeps of the conversation before what the request says.
    fn follow_kept(&mut self, request: &mut RequestRead<'_>) {
        request.server_history = match &request.parsed.kept {
            Kept::Nothing => None,
            Kept::Unnamed => Some(ServerHistory::Unknown),
            Kept::Response(id) => match self.kept.conversation(id) {
                Some(units) => {
                    put_before_messages(&mut request.parsed, units);
                    Some(ServerHistory::Followed)
                }
                None => Some(ServerHistory::Unknown),
            },
        };
        if request.server_history == Some(ServerHistory::Unknown) {
            self.counters.prompt_incomplete();
        }
    }

    /// The request's body without its content coding, masked where it is to be; else why it is not there.
    fn request_body(&mut self, exchange: &mut Exchange) -> Result<Decoded, String> {
        let body = match exchange.request.take() {
            Some(copied) => self.decoded(copied, &exchange.headers),
            None => Err("request body was not read".to_owned()),
        };
        match &mut self.redaction {
            Some(redaction) => {
                body.and_then(|body| redaction.body(body.into_bytes())).map(Decoded::Own)
            }
            None => body,
        }
    }

    fn read_request<'a>(
        &mut self,
        exchange: &Exchange,
        body: &'a Result<Decoded, String>,
    ) -> RequestRead<'a> {
        let api = exchange.api;
        match body {
            Ok(body) => match self.reader.read(api, body) {
                Ok(parsed) => {
                    let identity = parsed.identity();
                    RequestRead::new(parsed, identity, None)
                }
                Err(error) => {
                    let (unit, template) = request::raw_request(body);
                    let parsed = unread(api, vec![unit], template);
                    RequestRead::new(parsed, ContentHash::of(body), Some(error.to_string()))
                }
            },
            Err(note) => {
                let parsed = unread(api, Vec::new(), String::new());
                // No two bodies that were not read are taken for the same one.
                let identity = ContentHash(u128::from(exchange.number));
                RequestRead::new(parsed, identity, Some(note.clone()))
            }
        }
    }

    fn decoded(&self, copied: Copied, headers: &HeaderMap) -> Result<Decoded, String> {
        if copied.copy.is_over_limit() {
            return Err(format!(
                "request body is longer than {} bytes and was not recorded",
                self.limit_bytes
            ));
        }
        let mut decoder = ContentDecoder::new(headers, self.limit_bytes)
            .map_err(|error| format!("request body was not recorded: {error}"))?;
        let (wire, _) = copied.copy.into_parts();
        let own = match decoder.feed(&wire).map_err(|error| format!("request {error}"))? {
            Cow::Borrowed(_) => None,
            Cow::Owned(body) => Some(body),
        };
        Ok(own.map_or(Decoded::AsItCame(wire), Decoded::Own))
    }

    fn place(
        &mut self,
        exchange: &Exchange,
        hints: &AgentHints,
        request: &RequestRead<'_>,
        response: &Response,
    ) -> Place {
        let parsed = &request.parsed;
        // A session that another one names as its parent may be a subagent's itself.
        let root = hints.parent.as_deref().and_then(|it| self.lineage.session_of_agent(it));
        let named = exchange.session.as_deref().or(root.as_deref()).or(hints.session.as_deref());
        let calls = response.reply.blocks.iter().filter_map(|block| match block {
            ReplyBlock::ToolCall { id, .. } => Some(id.as_str()),
            _ => None,
        });
        self.lineage.place(&Seen {
            session: named.or(parsed.session_hint.as_deref()),
            agent_id: hints.agent_id.as_deref(),
            parent_agent: hints.parent.as_deref(),
            subagent: parsed.subagent_hint || hints.says_subagent || exchange.says_subagent,
            utility: parsed.utility_hint || hints.says_auxiliary || is_local(exchange),
            units: &parsed.units,
            body: request.body,
            arrived_ns: exchange.arrived_ns,
            ended_ns: response.ended_ns,
            end: match response.outcome {
                Outcome::Ok => AttemptEnd::Answered,
                Outcome::ClientCancelled => AttemptEnd::ClientGone,
                _ => AttemptEnd::Failed,
            },
            answered_calls: parsed.tool_results.iter().map(|r| r.call_id.as_str()).collect(),
            calls: calls.collect(),
            spawned_prompts: spawned_prompts(&response.reply),
            reply_text: &visible_text(&response.reply),
        })
    }

    fn turn_row(
        &self,
        exchange: &Exchange,
        hints: &AgentHints,
        request: RequestRead<'_>,
        response: &Response,
        place: &Place,
        request_id: String,
    ) -> TurnRow {
        let parsed = request.parsed;
        let reply = &response.reply;
        let usage = &reply.usage;
        let arrived_ns = exchange.arrived_ns;
        let since_arrival = |at_ns: i64| elapsed_ms(arrived_ns, at_ns);
        let notes = [response.error.clone(), request.note].into_iter().flatten();
        let error = notes.reduce(|all, note| format!("{all}; {note}"));
        let new_units = parsed.units.iter().skip(place.n_shared_units as usize);
        let new_texts: Vec<&str> = new_units.map(|unit| &*unit.text).collect();
        TurnRow {
            run_id: self.run_id.clone(),
            session_id: place.session_id.clone(),
            thread_id: place.thread_id.clone(),
            parent_thread_id: place.parent_thread_id.clone(),
            turn: place.turn,
            request_id,
            api: exchange.api.as_str().to_owned(),
            agent: hints.agent.clone(),
            engine: exchange.engine.as_deref().map(str::to_owned),
            kind: place.kind,
            isl_new_text: new_texts.join(exchange.api.unit_separator()),
            unit_hashes: parsed.units.iter().map(|unit| unit.hash.hex()).collect(),
            model: parsed.model,
            stream: parsed.stream,
            path: masked(&exchange.path),
            params: parsed.params,
            n_messages: parsed.n_messages,
            n_tools: parsed.n_tools,
            body_template: parsed.template,
            block_hashes: None,
            block_size: None,
            n_shared_units: place.n_shared_units,
            server_history: request.server_history,
            changes: changes_of(exchange),
            request_time: unix_seconds(arrived_ns),
            first_byte_time: response.first_byte_ns.map(unix_seconds),
            first_output_time: response.first_output_ns().map(unix_seconds),
            last_output_time: response.last_output_ns().map(unix_seconds),
            response_end_time: Some(unix_seconds(response.ended_ns)),
            output_offsets_us: response
                .output_ns
                .iter()
                .map(|ns| (ns - arrived_ns) / 1000)
                .collect(),
            ttft_ms: response.first_output_ns().map(since_arrival),
            itl_ms_mean: response.itl_ms_mean(),
            e2e_ms: Some(since_arrival(response.ended_ns)).filter(|_| !is_local(exchange)),
            tool_exec_ms: place.tool_exec_ms,
            residual_wait_ms: place.residual_wait_ms,
            http_status: response.status,
            outcome: response.outcome,
            error,
            stop_reason: reply.stop_reason.clone(),
            isl: usage.prompt_tokens,
            isl_cached: usage.cached_tokens,
            isl_cache_write: usage.cache_write_tokens,
            isl_new: usage.new_tokens(),
            osl: usage.completion_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            osl_text: reply.text(),
            reply_blocks: serde_json::to_string(&reply.blocks).unwrap_or_else(|_| "[]".to_owned()),
            engine_row: None,
            engine_join: crate::trace::record::EngineJoin::None,
        }
    }
}

/// A request of which nothing but the whole body, or nothing at all, is known.
fn unread(api: Api, units: Vec<Unit<'_>>, template: String) -> ParsedRequest<'_> {
    ParsedRequest {
        api,
        model: None,
        stream: false,
        params: "{}".to_owned(),
        units,
        template,
        n_messages: 0,
        n_tools: 0,
        tool_results: Vec::new(),
        kept: Kept::Nothing,
        session_hint: None,
        subagent_hint: false,
        utility_hint: false,
    }
}

/// The proxy answered by itself.
fn is_local(exchange: &Exchange) -> bool {
    exchange.changes.contains(&TurnRow::ANSWERED_LOCALLY)
}

/// Null where the request passed as it came.
fn changes_of(exchange: &Exchange) -> Option<Vec<String>> {
    let names = exchange.changes.iter().map(|name| (*name).to_owned());
    Some(names.collect::<Vec<_>>()).filter(|names| !names.is_empty())
}

/// Prompts that the reply's calls give to other agents.
fn spawned_prompts(reply: &Reply) -> Vec<String> {
    let prompt = |block: &ReplyBlock| match block {
        ReplyBlock::ToolCall { name, arguments, .. }
            if ["task", "agent", "spawn_agent"].contains(&name.to_ascii_lowercase().as_str()) =>
        {
            let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
            let prompt = arguments.get("prompt").or(arguments.get("message"))?.as_str()?;
            (!prompt.trim().is_empty()).then(|| prompt.to_owned())
        }
        _ => None,
    };
    reply.blocks.iter().filter_map(prompt).collect()
}

fn visible_text(reply: &Reply) -> String {
    let text = |block: &ReplyBlock| match block {
        ReplyBlock::Text { text } => Some(text.clone()),
        _ => None,
    };
    reply.blocks.iter().filter_map(text).collect()
}
