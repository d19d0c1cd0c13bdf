//! A recorded request as the body that is sent: rebuilt from the recording's units, with the model
//! replaced, a stream asked for and the output's length pinned, in the API it goes to.
//!
//! Built for each request just before it is sent, from texts that all requests share: the memory of
//! a replay grows with the requests on their way, not with the recording's prompts. With live content
//! the engine's own answers take the place of the recorded ones (`live`).

mod answer;
mod answer_responses;
mod live;
mod synthetic;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::plan::{Plan, PlannedRequest};
use super::routes::Route;
use super::salts::Salt;
use super::settings::{ContentMode, LengthForcing};
use crate::api::{Api, ReplyBlock, convert, edit_top_level, rebuild_body, whole_responses_body};
use crate::error::Result;
use crate::trace::Run;
use live::History;
pub(super) use live::{LiveCounts, has_history};
pub(super) use synthetic::{Synthetic, TextVocabulary, Vocabulary, text_body};

/// Builds bodies.
#[derive(Debug)]
pub(super) struct Contents {
    run: Arc<Run>,
    plan: Arc<Plan>,
    mode: ContentMode,
    /// Text of our own; only with synthetic content.
    synthetic: Option<Arc<Synthetic>>,
    model: String,
    routes: Vec<Route>,
    /// APIs in which the engine tells the tokens of each chunk when asked to.
    continuous_usage: Vec<Api>,
}

/// A body and where it goes.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) api: Api,
    pub(super) body: Bytes,
    /// What became of the recorded answers; only with live content.
    pub(super) live: Option<LiveCounts>,
}

/// What one thread of one play must remember from request to request. Gone with the play.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    live: Option<History>,
}

impl Conversation {
    /// Takes the answer to the request that was built last; none where it failed.
    pub(super) fn answered(&mut self, blocks: impl FnOnce() -> Option<Vec<ReplyBlock>>) {
        if let Some(history) = &mut self.live {
            history.answered(blocks());
        }
    }
}

impl Contents {
    pub(super) fn new(
        run: Arc<Run>,
        plan: Arc<Plan>,
        mode: ContentMode,
        synthetic: Option<Arc<Synthetic>>,
        model: String,
        routes: Vec<Route>,
        continuous_usage: Vec<Api>,
    ) -> Self {
        Self { run, plan, mode, synthetic, model, routes, continuous_usage }
    }

    /// The API that a request goes to.
    pub(super) fn api(&self, request: &PlannedRequest) -> Api {
        self.route(request).map_or(request.api, |route| route.sent)
    }

    fn route(&self, request: &PlannedRequest) -> Option<&Route> {
        self.routes.iter().find(|route| route.recorded == request.api)
    }

    /// The memory of a thread that begins.
    pub(super) fn conversation(&self) -> Conversation {
        Conversation { live: (self.mode == ContentMode::Live).then(History::default) }
    }

    /// The body of the next request of a conversation, with its cache salts where it has any.
    pub(super) fn build(
        &self,
        session: usize,
        at: usize,
        conversation: &mut Conversation,
        salt: Option<&Salt>,
    ) -> Result<Content, String> {
        let request = &self.plan.sessions[session].requests[at];
        let api = self.api(request);
        let mut body = match &self.synthetic {
            Some(synthetic) => synthetic.body(api, session, at, salt),
            None => self.recorded(request, api)?,
        };
        let mut live = None;
        if let Some(history) = &mut conversation.live {
            let (with_answers, counts) = history.apply(api, &body)?;
            (body, live) = (with_answers, Some(counts));
        }
        let forcing =
            self.route(request).map_or(LengthForcing::Unknown, |route| route.output_length);
        let target = request.target_output_tokens;
        let continuous_usage = self.continuous_usage.contains(&api);
        let edits = edits(api, &self.model, target, forcing, continuous_usage);
        let body = edit_top_level(&body, &edits)?;
        let body = match salt.filter(|_| self.synthetic.is_none()) {
            Some(salt) => salt.insert(&body)?,
            None => body,
        };
        Ok(Content { api, body: body.into(), live })
    }

    /// The recorded body in the API that it goes to.
    fn recorded(&self, request: &PlannedRequest, api: Api) -> Result<Vec<u8>, String> {
        let texts: Vec<&str> = request
            .units
            .iter()
            .map(|unit| self.run.unit_text(&self.plan.unit_hashes[*unit as usize]))
            .collect::<Result<_>>()
            .map_err(|error| error.to_string())?;
        let recorded = match request.api {
            Api::Responses => portable(whole_responses_body(&request.body_template, &texts)?),
            Api::Messages | Api::Chat | Api::Completions => {
                rebuild_body(&request.body_template, &texts)?
            }
        };
        if api == request.api {
            return Ok(recorded);
        }
        let recorded: Value =
            serde_json::from_slice(&recorded).map_err(|error| format!("not JSON: {error}"))?;
        let converted = convert::convert_request(&recorded, request.api, api).ok_or_else(|| {
            let (from, to) = (request.api.as_str(), api.as_str());
            format!("a request recorded in {from} cannot be sent as {to}")
        })?;
        Ok(converted.to_string().into_bytes())
    }
}

/// A Responses body that a server can read which did not make the recording.
fn portable(body: Vec<u8>) -> Vec<u8> {
    let read = serde_json::from_slice::<Value>(&body).ok();
    let portable = read.as_ref().and_then(convert::portable_responses);
    portable.map_or(body, |portable| portable.to_string().into_bytes())
}

/// What is changed in a recorded body before it is sent.
fn edits(
    api: Api,
    model: &str,
    target_output_tokens: Option<u64>,
    forcing: LengthForcing,
    continuous_usage: bool,
) -> Vec<(&'static str, Option<Value>)> {
    let mut edits = vec![("model", Some(json!(model))), ("stream", Some(json!(true)))];
    if matches!(api, Api::Chat | Api::Completions) {
        let mut options = json!({"include_usage": true});
        if continuous_usage {
            options["continuous_usage_stats"] = json!(true);
        }
        edits.push(("stream_options", Some(options)));
    }
    if api == Api::Responses {
        // The next request tells its whole prompt: the server need not keep this one.
        edits.extend([("store", Some(json!(false))), ("background", None)]);
    }
    // No engine takes a limit of 0.
    if let Some(tokens) = target_output_tokens.map(|tokens| tokens.max(1)) {
        let limit = if api == Api::Responses { "max_output_tokens" } else { "max_tokens" };
        edits.push((limit, Some(json!(tokens))));
        if api == Api::Chat {
            edits.push(("max_completion_tokens", None));
        }
        if forcing != LengthForcing::Refused {
            edits.push(("min_tokens", Some(json!(tokens))));
            edits.push(("ignore_eos", Some(json!(true))));
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(api: Api, target: Option<u64>, forcing: LengthForcing, body: &str, expected: &Value) {
        let edits = edits(api, "served", target, forcing, true);
        let edited = edit_top_level(body.as_bytes(), &edits).unwrap();
        assert_eq!(&serde_json::from_slice::<Value>(&edited).unwrap(), expected);
    }

    #[test]
    fn model_stream_and_length_are_replaced_and_nothing_else() {
        check(
            Api::Messages,
            Some(7),
            LengthForcing::Honoured,
            r#"{"model":"m","max_tokens":4096,"messages":[{"model":"x"}],"temperature":1}"#,
            &json!({"model": "served", "max_tokens": 7, "messages": [{"model": "x"}],
                    "temperature": 1, "stream": true, "min_tokens": 7, "ignore_eos": true}),
        );
        check(
            Api::Chat,
            Some(0),
            LengthForcing::Ignored,
            r#"{"model":"m","max_completion_tokens":99,"stream":false,"messages":[]}"#,
            &json!({"model": "served", "max_tokens": 1, "min_tokens": 1, "ignore_eos": true,
                    "stream": true, "messages": [],
                    "stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        );
    }

    #[test]
    fn a_response_is_pinned_by_its_own_limit_and_not_kept_by_the_server() {
        check(
            Api::Responses,
            Some(7),
            LengthForcing::Honoured,
            r#"{"model":"m","max_output_tokens":99,"background":true,"input":"x"}"#,
            &json!({"model": "served", "max_output_tokens": 7, "min_tokens": 7, "ignore_eos": true,
                    "stream": true, "store": false, "input": "x"}),
        );
        check(
            Api::Completions,
            Some(7),
            LengthForcing::Honoured,
            r#"{"prompt":[1]}"#,
            &json!({"model": "served", "max_tokens": 7, "min_tokens": 7, "ignore_eos": true,
                    "stream": true, "prompt": [1],
                    "stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        );
    }

    #[test]
    fn a_refused_pin_is_left_out_and_an_unknown_length_leaves_the_recorded_limit() {
        check(
            Api::Messages,
            Some(7),
            LengthForcing::Refused,
            r#"{"max_tokens":4096}"#,
            &json!({"model": "served", "max_tokens": 7, "stream": true}),
        );
        check(
            Api::Messages,
            None,
            LengthForcing::Honoured,
            r#"{"max_tokens":4096}"#,
            &json!({"model": "served", "max_tokens": 4096, "stream": true}),
        );
    }
}
