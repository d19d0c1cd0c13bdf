//! The engine's own answers in the later requests of the same thread.
//!
//! Pure. Which assistant messages of a request stand for which answer is told by their order: where a
//! request repeats the assistant messages of the request before it (compared in normal form) and has
//! more, the first new ones are the recorded form of the answer to that request. After a context reset
//! or an edit of the history, recorded forms seen before are recognised by their content; what is not
//! recognised stays as recorded, and so does the place of a request that failed. How an answer is
//! written and what becomes of tool results is `answer`'s affair.

use std::collections::HashSet;
use std::ops::Range;

use super::answer::{self, Departures, Placed, Recorded};
use super::answer_responses::{custom_tools, place_in_responses};
use crate::api::{
    Api, ContentHash, ReplyBlock, UnitKind, list_elements, parse_request, replace_elements,
};

/// Whether requests of this API hold a history of messages that answers can be put into.
pub(crate) fn has_history(api: Api) -> bool {
    matches!(api, Api::Messages | Api::Chat | Api::Responses)
}

/// What the engine said in one thread of one play, as long as it is played.
#[derive(Debug, Default)]
pub(crate) struct History {
    answers: Vec<Answer>,
    /// Of the last request: what each run of assistant messages is.
    runs: Vec<Run>,
    /// The answer to the last request; none where it failed or said nothing.
    newest: Option<usize>,
    ids: HashSet<String>,
}

#[derive(Debug)]
struct Answer {
    blocks: Vec<ReplyBlock>,
    /// The recorded form, once it was seen.
    recorded: Option<ContentHash>,
}

/// A run of assistant messages in a request: its content, and the answer that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    content: ContentHash,
    answer: Option<usize>,
}

/// What became of the assistant messages of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LiveCounts {
    /// Answers of the engine in the request's history.
    pub(crate) live: u32,
    /// Answers as recorded.
    pub(crate) recorded: u32,
    /// Departures of the answer that the history holds for the first time.
    pub(crate) departures: Departures,
}

impl History {
    /// Keeps the answer to the request that was sent last; none where it failed.
    pub(crate) fn answered(&mut self, blocks: Option<Vec<ReplyBlock>>) {
        self.newest = blocks.filter(|blocks| answer::says_something(blocks)).map(|mut blocks| {
            answer::make_ids_unique(&mut blocks, &mut self.ids);
            self.answers.push(Answer { blocks, recorded: None });
            self.answers.len() - 1
        });
    }

    /// The request with the engine's answers in the place of the recorded ones.
    pub(crate) fn apply(&mut self, api: Api, body: &[u8]) -> Result<(Vec<u8>, LiveCounts), String> {
        let list = list_name(api);
        // A Responses request may be a text alone, in which nothing was said before.
        let messages = match list_elements(body, list) {
            Err(_) if api == Api::Responses => return Ok((body.to_vec(), self.nothing_said())),
            messages => messages?,
        };
        let custom = match api {
            Api::Responses => custom_tools(&list_elements(body, "tools").unwrap_or_default()),
            Api::Messages | Api::Chat | Api::Completions => Vec::new(),
        };
        let (spans, contents) = assistant_runs(api, body)?;
        let newest = self.newest.take();
        let runs = self.recognise(&contents, newest);
        let mut counts = LiveCounts::default();
        let mut replaced: Vec<String> = Vec::with_capacity(messages.len());
        let raw = |range: Range<usize>| messages[range].iter().map(|raw| (*raw).to_owned());
        replaced.extend(raw(0..spans.first().map_or(messages.len(), |span| span.start)));
        for (index, span) in spans.iter().enumerate() {
            let until = spans.get(index + 1).map_or(messages.len(), |next| next.start);
            let Some(answer) = runs[index].answer else {
                counts.recorded += 1;
                replaced.extend(raw(span.start..until));
                continue;
            };
            counts.live += 1;
            let (recorded, after) = (&messages[span.clone()], &messages[span.end..until]);
            let placed = self.place(api, answer, recorded, after, &custom)?;
            replaced.extend(placed.messages);
            if Some(answer) == newest {
                counts.departures = placed.departures;
            }
        }
        self.runs = runs;
        let body =
            if counts.live == 0 { body.to_vec() } else { replace_elements(body, list, &replaced)? };
        Ok((body, counts))
    }

    /// A request without a history.
    fn nothing_said(&mut self) -> LiveCounts {
        self.newest = None;
        self.runs = Vec::new();
        LiveCounts::default()
    }

    /// What each run of assistant messages of a request stands for.
    fn recognise(&mut self, contents: &[ContentHash], newest: Option<usize>) -> Vec<Run> {
        let same =
            contents.iter().zip(&self.runs).filter(|(content, run)| **content == run.content);
        let (n_before, n_same) = (self.runs.len(), same.count());
        // A message that was sent again in another form breaks no conversation; a reset does.
        let continued = contents.len() >= n_before && n_same * 2 >= n_before;
        let mut seen_from = 0;
        let mut runs = Vec::with_capacity(contents.len());
        for (index, content) in contents.iter().enumerate() {
            let answer = match self.runs.get(index) {
                Some(before) if continued => before.answer,
                None if continued && index == n_before => newest,
                _ => self.seen(*content, seen_from),
            };
            if let Some(answer) = answer {
                self.answers[answer].recorded = Some(*content);
                seen_from = answer + 1;
            }
            runs.push(Run { content: *content, answer });
        }
        runs
    }

    /// The first answer from `from` on whose recorded form is this.
    fn seen(&self, content: ContentHash, from: usize) -> Option<usize> {
        let later = self.answers.iter().enumerate().skip(from);
        later.filter(|(_, answer)| answer.recorded == Some(content)).map(|(index, _)| index).next()
    }

    fn place(
        &self,
        api: Api,
        answer: usize,
        recorded: &[&str],
        after: &[&str],
        custom: &[String],
    ) -> Result<Placed, String> {
        let recorded = read_all(recorded)?;
        let after = read_all(after)?;
        let blocks = &self.answers[answer].blocks;
        Ok(match api {
            Api::Messages => answer::place_in_messages(blocks, &recorded, &after),
            Api::Chat => answer::place_in_chat(blocks, &recorded, &after),
            Api::Responses => place_in_responses(blocks, &recorded, &after, custom),
            Api::Completions => {
                return Err("a raw prompt has no history that answers could be put into".to_owned());
            }
        })
    }
}

/// The list that holds a request's messages.
fn list_name(api: Api) -> &'static str {
    match api {
        Api::Responses => "input",
        Api::Messages | Api::Chat | Api::Completions => "messages",
    }
}

fn read_all<'a>(messages: &[&'a str]) -> Result<Vec<Recorded<'a>>, String> {
    messages.iter().map(|raw| Recorded::read(raw)).collect()
}

/// Runs of assistant messages, as places in the list of messages, and the content of each in normal
/// form.
fn assistant_runs(api: Api, body: &[u8]) -> Result<(Vec<Range<usize>>, Vec<ContentHash>), String> {
    let request = parse_request(api, body).map_err(|error| error.to_string())?;
    let messages = request.units.iter().filter(|unit| unit.kind == UnitKind::Message);
    let (mut spans, mut contents): (Vec<Range<usize>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for (index, message) in messages.enumerate() {
        if message.role != "assistant" {
            continue;
        }
        let blocks = message.blocks.iter().flat_map(|block| block.hash.0.to_be_bytes());
        if let Some(span) = spans.last_mut().filter(|span| span.end == index) {
            span.end = index + 1;
            contents.last_mut().into_iter().for_each(|content| content.extend(blocks.clone()));
        } else {
            spans.push(index..index + 1);
            contents.push(blocks.collect());
        }
    }
    Ok((spans, contents.iter().map(|content| ContentHash::of(content)).collect()))
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
