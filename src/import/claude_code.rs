//! Claude Code's own logs: a session's file and those of its subagents.
//!
//! A reply is written as several records that share a message id, one for each content block, and results of
//! its first calls may stand between them: what is user input waits until the next reply begins. Of usage,
//! which each record repeats, the best whole copy counts. A compaction summary begins the prompt anew; a
//! question asked again from an earlier record goes on from there. System prompt and tool definitions are
//! not in these logs, so a prompt's units are its messages alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::claude_thread::{Reply, Thread, ToolOutcome};
use super::draft::{Drafts, Tokens};
use super::lines::{Lines, Tally};
use super::problems::Problems;
use super::times::unix_of;
use crate::error::Result;
use crate::trace::record::TurnKind;

/// The model of records that no model made.
const SYNTHETIC: &str = "<synthetic>";

/// The files of one session.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionFiles {
    /// The session's own; none where only a subagent's is there.
    pub(super) main: Option<PathBuf>,
    /// Those of its subagents.
    pub(super) subagents: Vec<PathBuf>,
}

/// A line of a log, as far as it matters here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    uuid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_uuid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent_id: Option<Cow<'a, str>>,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    is_compact_summary: bool,
    #[serde(default)]
    is_visible_in_transcript_only: bool,
    #[serde(default)]
    is_api_error_message: bool,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_use_result: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Where a tool says how long it took itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnTime {
    duration_ms: Option<f64>,
    duration_seconds: Option<f64>,
    total_duration_ms: Option<f64>,
}

/// What stands beside a subagent's log.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    tool_use_id: Option<String>,
}

/// Reads one session.
pub(super) fn read(
    files: &SessionFiles,
    tallies: &[Tally],
    problems: &mut Problems,
) -> Result<Drafts> {
    let mut reader = Reader::default();
    for (path, tally) in files.main.iter().chain(&files.subagents).zip(tallies) {
        reader.file(path, tally, problems)?;
    }
    Ok(reader.finish(&files.subagents))
}

#[derive(Default)]
struct Reader {
    threads: Vec<Thread>,
    /// Threads by what names them: a subagent's id, the first record of a side chain.
    by_name: HashMap<String, usize>,
    /// The thread of each record of a side chain.
    chains: HashMap<String, usize>,
    session_id: String,
}

impl Reader {
    fn file(&mut self, path: &Path, tally: &Tally, problems: &mut Problems) -> Result<()> {
        let stem =
            path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut lines = Lines::open(path, tally)?;
        while let Some((number, line)) = lines.next(problems) {
            let record: Record<'_> = match serde_json::from_str(line) {
                Ok(record) => record,
                Err(error) => {
                    problems.add("not a record", path, number, error.to_string());
                    continue;
                }
            };
            if let Err(what) = self.record(&record, &stem) {
                problems.add("record left out", path, number, what);
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, stem: &str) -> std::result::Result<(), String> {
        if let Some(session_id) = &record.session_id
            && self.session_id.is_empty()
        {
            session_id.as_ref().clone_into(&mut self.session_id);
        }
        if !matches!(record.kind.as_ref(), "user" | "assistant" | "system" | "attachment") {
            return Ok(());
        }
        let index = self.thread_of(record, stem);
        let time = match &record.timestamp {
            Some(text) => Some(unix_of(text).ok_or_else(|| format!("no time: {text:?}"))?),
            None => None,
        };
        let thread = &mut self.threads[index];
        match record.kind.as_ref() {
            "user" if !record.is_visible_in_transcript_only => {
                let Some(message) = read_message(record)? else { return Ok(()) };
                let Some(content) = message.content else { return Ok(()) };
                if record.is_compact_summary {
                    thread.compacted();
                } else if !content.get().contains("\"tool_result\"") {
                    thread.goes_on_from(record.parent_uuid.as_deref());
                }
                thread.input(content, time, &outcome(record));
            }
            "assistant" => {
                let Some(message) = read_message(record)? else { return Ok(()) };
                if message.model.as_deref() == Some(SYNTHETIC) || record.is_api_error_message {
                    return Ok(());
                }
                thread.reply(Reply {
                    id: message.id.as_deref(),
                    model: message.model.as_deref(),
                    content: message.content,
                    stop_reason: message.stop_reason.as_deref(),
                    tokens: message.usage.map(tokens).unwrap_or_default(),
                    time,
                });
            }
            _ => {}
        }
        if let Some(uuid) = &record.uuid {
            thread.passed(uuid);
        }
        Ok(())
    }

    /// The thread that a record belongs to.
    fn thread_of(&mut self, record: &Record<'_>, stem: &str) -> usize {
        let chain =
            record.parent_uuid.as_deref().and_then(|parent| self.chains.get(parent).copied());
        let name = match (&record.agent_id, record.is_sidechain) {
            (Some(agent), true) => format!("agent-{agent}"),
            (None, true) if stem.starts_with("agent-") => stem.to_owned(),
            (None, true) => match chain {
                Some(index) => return self.follow(record, index),
                None => format!("sidechain-{}", record.uuid.as_deref().unwrap_or_default()),
            },
            (_, false) => String::new(),
        };
        let is_main = name.is_empty();
        let known = self.by_name.get(&name).copied();
        let index = known.unwrap_or_else(|| {
            let kind = if is_main { TurnKind::Main } else { TurnKind::Subagent };
            self.threads.push(Thread::new(name.clone(), kind));
            self.by_name.insert(name, self.threads.len() - 1);
            self.threads.len() - 1
        });
        if is_main { index } else { self.follow(record, index) }
    }

    fn follow(&mut self, record: &Record<'_>, index: usize) -> usize {
        if let Some(uuid) = &record.uuid {
            self.chains.insert(uuid.as_ref().to_owned(), index);
        }
        index
    }

    fn finish(self, subagents: &[PathBuf]) -> Drafts {
        let session_id = self.session_id;
        let id_of = |name: &str| match name {
            "" => session_id.clone(),
            name => format!("{session_id}/{name}"),
        };
        let makers: HashMap<String, String> = self
            .threads
            .iter()
            .flat_map(|thread| {
                thread.call_ids().map(|call| (call.to_owned(), id_of(thread.name())))
            })
            .collect();
        // A subagent's own parent, where its file says which call started it; else the session's main thread.
        let parents: HashMap<String, String> = subagents
            .iter()
            .filter_map(|path| {
                let meta = std::fs::read(path.with_extension("meta.json")).ok()?;
                let meta: Meta = serde_json::from_slice(&meta).ok()?;
                let stem = path.file_stem()?.to_string_lossy().into_owned();
                Some((stem, makers.get(&meta.tool_use_id?)?.clone()))
            })
            .collect();
        let mut drafts = Drafts::default();
        for thread in self.threads {
            let is_main = thread.name().is_empty();
            let parent = (!is_main)
                .then(|| parents.get(thread.name()).cloned().unwrap_or_else(|| session_id.clone()));
            let thread_id = id_of(thread.name());
            thread.finish(&session_id, &thread_id, parent.as_deref(), &mut drafts);
        }
        drafts
    }
}

fn read_message<'a>(record: &Record<'a>) -> std::result::Result<Option<Message<'a>>, String> {
    record
        .message
        .map(|message| serde_json::from_str(message.get()))
        .transpose()
        .map_err(|error| error.to_string())
}

/// What the record of a tool's result says beside the result.
fn outcome(record: &Record<'_>) -> ToolOutcome {
    let told = record.tool_use_result.filter(|result| result.get().starts_with('{'));
    let told: OwnTime =
        told.and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or_default();
    let seconds = told.duration_seconds.map(|seconds| seconds * 1e3);
    ToolOutcome { own_ms: told.duration_ms.or(seconds).or(told.total_duration_ms) }
}

/// Messages count what was read from cache and what was written to it apart from the rest. Where that rest is 0 at a
/// stream's end, Claude Code keeps the count that opened the stream, and engines that know nothing of their cache by then
/// (vLLM) open with the whole prompt: it is not counted twice.
fn tokens(usage: Usage) -> Tokens {
    let Usage { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens } =
        usage;
    let through_cache = cache_creation_input_tokens
        .unwrap_or(0)
        .saturating_add(cache_read_input_tokens.unwrap_or(0));
    let whole = |input: u64| {
        if input == through_cache { input } else { input.saturating_add(through_cache) }
    };
    Tokens {
        isl: input_tokens.map(whole),
        cached: cache_read_input_tokens,
        cache_write: cache_creation_input_tokens,
        osl: output_tokens,
        reasoning: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_counted_once() {
        for (input, written, read, isl) in [
            (Some(22), Some(2560), Some(7040), Some(9622)),
            (Some(31), Some(0), Some(10_368), Some(10_399)),
            (Some(5), None, None, Some(5)),
            // Its length is a multiple of the engine's block: nothing is left beside the cache.
            (Some(10_368), Some(128), Some(10_240), Some(10_368)),
            (Some(0), Some(0), Some(0), Some(0)),
            (None, Some(128), Some(10_240), None),
        ] {
            let usage = Usage {
                input_tokens: input,
                cache_creation_input_tokens: written,
                cache_read_input_tokens: read,
                output_tokens: None,
            };
            assert_eq!(tokens(usage).isl, isl);
        }
    }
}
