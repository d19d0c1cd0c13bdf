//! What an engine offers and honours, found out by asking and by small requests.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Control, Refusal};
use crate::api::{Api, parse_reply};
use crate::error::Result;

/// Which APIs an engine offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfferedApis {
    /// Anthropic Messages.
    pub messages: bool,
    /// `OpenAI` Chat Completions.
    pub chat: bool,
    /// `OpenAI` Completions.
    pub completions: bool,
    /// `OpenAI` Responses.
    pub responses: bool,
}

impl OfferedApis {
    /// Whether an API is offered.
    pub fn offers(self, api: Api) -> bool {
        match api {
            Api::Messages => self.messages,
            Api::Chat => self.chat,
            Api::Completions => self.completions,
            Api::Responses => self.responses,
        }
    }
}

/// Whether an engine makes outputs as long as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LengthForcing {
    /// The forced output had the length asked for, and the same request unforced a shorter one or, of a
    /// minimum above the maximum, a refusal.
    Honoured,
    /// The output ended of itself.
    Ignored {
        /// Tokens asked for.
        asked: u64,
        /// Tokens that came.
        given: u64,
    },
    /// Nothing can be said: the output is that long unforced as well and the engine takes a minimum
    /// above the maximum, or the usage is missing.
    Untold,
    /// The engine does not take such a request.
    Refused(Refusal),
}

/// Tokens asked for by the probe: no length at which a short answer would end by chance.
const PROBE_TOKENS: u64 = 24;

impl Control {
    /// Which APIs the engine offers: by its own description where it has one, else by a request of one
    /// output token to each.
    pub async fn apis(&self, model: &str) -> Result<OfferedApis> {
        let (status, body) = self.get("/openapi.json").await?;
        let described = Some(body).filter(|_| status.is_success());
        let described: Option<Value> = described.and_then(|body| serde_json::from_str(&body).ok());
        if let Some(paths) = described.as_ref().and_then(|api| api["paths"].as_object()) {
            return Ok(OfferedApis {
                messages: paths.contains_key("/v1/messages"),
                chat: paths.contains_key("/v1/chat/completions"),
                completions: paths.contains_key("/v1/completions"),
                responses: paths.contains_key("/v1/responses"),
            });
        }
        Ok(OfferedApis {
            messages: self.is_served(Api::Messages, model).await?,
            chat: self.is_served(Api::Chat, model).await?,
            completions: self.is_served(Api::Completions, model).await?,
            responses: self.is_served(Api::Responses, model).await?,
        })
    }

    async fn is_served(&self, api: Api, model: &str) -> Result<bool> {
        let mut body = question(api, model, "Hi");
        body[limit_name(api)] = json!(1);
        let (status, _) = self.post(api.path(), &body).await?;
        Ok(!matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        ))
    }

    /// Whether outputs can be made as long as recorded: asks for a short answer, forced to a length that
    /// it would not have, and looks at the usage.
    pub async fn probe_output_length(&self, api: Api, model: &str) -> Result<LengthForcing> {
        let mut body = question(api, model, "Answer with one word: yes.");
        body[limit_name(api)] = json!(PROBE_TOKENS);
        let unforced = body.clone();
        body["min_tokens"] = json!(PROBE_TOKENS);
        body["ignore_eos"] = json!(true);
        let (status, reply) = self.post(api.path(), &body).await?;
        if !status.is_success() {
            return Ok(LengthForcing::Refused(Refusal::new(status, &reply)));
        }
        match output_tokens(&reply) {
            None => return Ok(LengthForcing::Untold),
            Some(PROBE_TOKENS) => {}
            Some(given) => return Ok(LengthForcing::Ignored { asked: PROBE_TOKENS, given }),
        }
        // A model that talks on would reach the limit anyway: only a comparison shows the force.
        let (status, reply) = self.post(api.path(), &unforced).await?;
        if status.is_success() && output_tokens(&reply).is_some_and(|given| given < PROBE_TOKENS) {
            return Ok(LengthForcing::Honoured);
        }
        // Stop texts that occur in any answer are held back by a forced length and by nothing else.
        let stop = if api == Api::Messages { "stop_sequences" } else { "stop" };
        body[stop] = json!([" ", "e", "a", "\n"]);
        let (status, reply) = self.post(api.path(), &body).await?;
        let held = status.is_success() && output_tokens(&reply) == Some(PROBE_TOKENS);
        Ok(if held { LengthForcing::Honoured } else { LengthForcing::Untold })
    }

    /// Whether Completions takes a prompt of token ids as it is: sends three and looks at the usage.
    pub async fn takes_token_ids(&self, model: &str) -> Result<bool> {
        // Low ids are in every vocabulary.
        self.takes_prompt(model, &[11, 12, 13]).await
    }

    /// Prompt tokens by the usage of an answer of one token to a request in this form; none where the
    /// answer has none.
    pub async fn prompt_tokens(&self, api: Api, mut body: Value) -> Result<Answer<Option<u64>>> {
        body[limit_name(api)] = json!(1);
        if api == Api::Responses {
            body["store"] = json!(false);
        }
        let (status, reply) = self.post(api.path(), &body).await?;
        if !status.is_success() {
            return Ok(Answer::Refused(Refusal::new(status, &reply)));
        }
        Ok(Answer::Given(parse_reply(api, reply.as_bytes()).usage.prompt_tokens))
    }

    /// Whether Completions takes these token ids and counts them as they are.
    pub async fn takes_prompt(&self, model: &str, ids: &[u32]) -> Result<bool> {
        let body = json!({"model": model, "max_tokens": 1, "prompt": ids});
        let (status, reply) = self.post(Api::Completions.path(), &body).await?;
        let reply: Value = serde_json::from_str(&reply).unwrap_or_default();
        let counted = reply["usage"]["prompt_tokens"].as_u64();
        Ok(status.is_success() && counted == Some(ids.len() as u64))
    }
}

/// A small request in the form of an API; its limit of output tokens is for the caller to set.
fn question(api: Api, model: &str, text: &str) -> Value {
    match api {
        Api::Messages | Api::Chat => {
            json!({"model": model, "messages": [{"role": "user", "content": text}]})
        }
        Api::Completions => json!({"model": model, "prompt": text}),
        // Nothing is left behind on the server.
        Api::Responses => json!({"model": model, "input": text, "store": false}),
    }
}

fn limit_name(api: Api) -> &'static str {
    match api {
        Api::Messages | Api::Chat | Api::Completions => "max_tokens",
        Api::Responses => "max_output_tokens",
    }
}

/// Output tokens by the usage of a reply, in either form of usage.
fn output_tokens(body: &str) -> Option<u64> {
    let reply: Value = serde_json::from_str(body).ok()?;
    let usage = &reply["usage"];
    usage["completion_tokens"].as_u64().or_else(|| usage["output_tokens"].as_u64())
}
