//! The response side of an exchange, read: how it ended, what it said, when its output came.

use http::header;

use super::content::ContentDecoder;
use super::exchange::{Copied, Exchange, ResponseHead};
use crate::api::{Api, Reply, ReplyDecoder, Usage, parse_reply};
use crate::clock::elapsed_ms;
use crate::http::tee::End;
use crate::trace::record::Outcome;

/// So much of an error body that is not of the API's form goes into the row.
const ERROR_TEXT_CHARS: usize = 300;

const CUT: &str = "the capture was stopped before the end";

/// A response as the rows need it.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) status: Option<u16>,
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
    pub(super) reply: Reply,
    pub(super) first_byte_ns: Option<i64>,
    /// Stamp of each chunk of a stream that carried output.
    pub(super) output_ns: Vec<i64>,
    pub(super) ended_ns: i64,
    /// Nothing is known of the body but how it ended.
    is_unread: bool,
}

impl Response {
    pub(super) fn first_output_ns(&self) -> Option<i64> {
        self.output_ns.first().copied()
    }

    pub(super) fn last_output_ns(&self) -> Option<i64> {
        self.output_ns.last().copied()
    }

    /// Takes away what is only an engine's to say: counts, and times of output.
    pub(super) fn is_no_engines(&mut self) {
        self.reply.usage = Usage::default();
        self.first_byte_ns = None;
        self.output_ns.clear();
    }

    /// (last output - first output) / (output tokens - 1), from 2 tokens.
    pub(super) fn itl_ms_mean(&self) -> Option<f64> {
        let tokens = self.reply.usage.completion_tokens.filter(|tokens| *tokens >= 2)?;
        let ms = elapsed_ms(self.first_output_ns()?, self.last_output_ns()?);
        Some(ms / (tokens - 1) as f64)
    }
}

/// Reads the response out of an exchange.
pub(super) fn read_response(exchange: &mut Exchange, limit_bytes: u64) -> Response {
    let Some(head) = exchange.head.take() else { return no_response(exchange) };
    let mut response = Response {
        status: Some(head.status.as_u16()),
        ended_ns: exchange.gone_ns,
        ..Response::default()
    };
    let end = match exchange.response.take() {
        Some(copied) => {
            response.first_byte_ns = copied.copy.first_ns();
            response.ended_ns = copied.ended_ns;
            let end = copied.end.clone();
            response.read_body(exchange.api, &head, copied, limit_bytes);
            end
        }
        // The head never reached a client that had gone.
        None => End::Cancelled,
    };
    response.conclude(&head, end, exchange.was_cut);
    response
}

/// No head came: the engine could not be reached, or the client did not wait for it.
fn no_response(exchange: &mut Exchange) -> Response {
    let client_broke =
        exchange.request.as_ref().is_some_and(|copied| matches!(copied.end, End::Error(_)));
    match exchange.failure.take() {
        Some(failure) if !client_broke && !failure.by_client => Response {
            outcome: Outcome::UpstreamError,
            error: Some(failure.message),
            ended_ns: failure.at_ns,
            ..Response::default()
        },
        None if exchange.was_cut => Response {
            outcome: Outcome::Truncated,
            error: Some(CUT.to_owned()),
            ended_ns: exchange.gone_ns,
            ..Response::default()
        },
        failure => Response {
            outcome: Outcome::ClientCancelled,
            error: Some("client went away before the response".to_owned()),
            ended_ns: failure.map_or(exchange.gone_ns, |failure| failure.at_ns),
            ..Response::default()
        },
    }
}

impl Response {
    fn read_body(&mut self, api: Api, head: &ResponseHead, copied: Copied, limit_bytes: u64) {
        if copied.copy.is_over_limit() {
            let text =
                format!("response body is longer than {limit_bytes} bytes and was not recorded");
            self.error = Some(text);
            self.is_unread = true;
            return;
        }
        let mut decoder = match ContentDecoder::new(&head.headers, limit_bytes) {
            Ok(decoder) => decoder,
            Err(error) => {
                self.error = Some(format!("response body was not recorded: {error}"));
                self.is_unread = true;
                return;
            }
        };
        let (wire, marks) = copied.copy.into_parts();
        let mut stream = is_event_stream(head).then(|| ReplyDecoder::new(api));
        let mut whole = Vec::new();
        let mut start = 0;
        for (at_ns, end) in marks {
            let piece = &wire[start..end as usize];
            start = end as usize;
            match (decoder.feed(piece), &mut stream) {
                (Ok(text), Some(stream)) => {
                    let fed = stream.feed(&text);
                    self.output_ns.extend(std::iter::repeat_n(at_ns, fed.output_chunks as usize));
                }
                (Ok(text), None) => whole.extend_from_slice(&text),
                (Err(error), _) => {
                    self.error = Some(format!("response {error}"));
                    self.is_unread = true;
                    break;
                }
            }
        }
        self.reply = match stream {
            Some(stream) => stream.finish(),
            None => parse_reply(api, &whole),
        };
        if head.status.as_u16() >= 400 && self.error.is_none() {
            let said = || {
                let text = String::from_utf8_lossy(&whole);
                text.trim().chars().take(ERROR_TEXT_CHARS).collect::<String>()
            };
            self.error = Some(self.reply.error.clone().unwrap_or_else(said));
        }
    }

    /// Says how the exchange ended. A stream that told that it was done has ended well, whatever the
    /// connection did afterwards: many clients hang up on the last event.
    fn conclude(&mut self, head: &ResponseHead, end: End, was_cut: bool) {
        let is_stream = is_event_stream(head) && !self.is_unread;
        let is_done = is_stream && self.reply.complete;
        let (outcome, why) = match end {
            _ if head.status.as_u16() >= 400 => (Outcome::HttpError, None),
            _ if self.reply.error.is_some() => (Outcome::UpstreamError, self.reply.error.clone()),
            _ if is_done => (Outcome::Ok, None),
            End::Cancelled if was_cut => (Outcome::Truncated, Some(CUT.to_owned())),
            End::Cancelled => {
                (Outcome::ClientCancelled, Some("client went away within the response".to_owned()))
            }
            End::Error(error) => (Outcome::Truncated, Some(format!("response broke: {error}"))),
            End::Complete if is_stream => {
                (Outcome::Truncated, Some("stream ended without its last event".to_owned()))
            }
            End::Complete => (Outcome::Ok, None),
        };
        self.outcome = outcome;
        self.error = self.error.take().or(why);
    }
}

fn is_event_stream(head: &ResponseHead) -> bool {
    let content_type = head.headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| {
        let value = value.as_bytes();
        value.len() >= 17 && value[..17].eq_ignore_ascii_case(b"text/event-stream")
    })
}
