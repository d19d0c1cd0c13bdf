//! A request body into what the engine needs: a prompt in tokens, a reply laid out, the form to answer
//! in. Refuses what vLLM refuses, in its words where they matter.
//!
//! Sampling settings (`temperature` and its kin) are taken and mean nothing here: the text is made up.

use std::sync::Arc;

use serde_json::Value;

use super::kv_cache::{TokenChain, fold};
use super::plan::{LengthRules, Plan};
use super::prompt::Conversation;
use super::reply_chat::UsageOptions;
use super::script::Script;
use super::tokens::{Segment, Tokenizer};
use crate::api::{Api, convert_request};

/// What all requests of one server share.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name to ask for.
    pub name: String,
    /// Longest prompt plus output.
    pub max_model_len: u32,
    /// Text into tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// Scripted replies.
    pub script: Option<Arc<Script>>,
    /// Seed of all text.
    pub seed: u64,
}

/// The form of a request and of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `/v1/messages`.
    Messages,
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
}

/// A request that cannot be served, in HTTP's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// vLLM's name for the kind of error.
    pub kind: &'static str,
    /// What is wrong.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<&'static str>,
}

impl Refusal {
    /// A 400.
    pub fn bad(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self { status: 400, kind: "BadRequestError", message: message.into(), param }
    }
}

/// A request ready for the engine.
#[derive(Debug)]
pub struct Generation {
    /// Whether to stream.
    pub stream: bool,
    /// What usage to stream.
    pub usage: UsageOptions,
    /// The prompt.
    pub prompt: TokenChain,
    /// Its token ids, where they are asked back with those of the reply (`return_token_ids`).
    pub returned_ids: Option<Vec<u32>>,
    /// The reply.
    pub plan: Plan,
    /// The `max_tokens` in force.
    pub max_tokens: u32,
}

impl Model {
    /// Reads a body as JSON and sees that it asks for this model.
    pub fn read_body(&self, body: &[u8]) -> Result<Value, Refusal> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad(format!("JSON decode error: {error}"), Some("body")))?;
        if !body.is_object() {
            return Err(Refusal::bad("the body must be a JSON object", Some("body")));
        }
        match body.get("model") {
            None | Some(Value::Null) => Ok(body),
            Some(Value::String(name)) if *name == self.name => Ok(body),
            Some(name) => Err(Refusal {
                status: 404,
                kind: "NotFoundError",
                message: format!(
                    "The model `{}` does not exist. Valid aliases: {}.",
                    name.as_str().unwrap_or_default(),
                    self.name
                ),
                param: Some("model"),
            }),
        }
    }

    /// Lays out a request's prompt and reply.
    pub fn generation(&self, form: Form, body: &Value) -> Result<Generation, Refusal> {
        let conversation = match form {
            Form::Messages => Some(messages_conversation(body)?),
            Form::Chat => Some(chat_conversation(body)?),
            Form::Responses => Some(responses_conversation(body)?),
            Form::Completions => None,
        };
        let ids = match &conversation {
            Some(conversation) => self.tokenizer.encode(&conversation.render(true)),
            None => self.completion_prompt(body)?,
        };
        if ids.is_empty() {
            return Err(Refusal::bad("the prompt must not be empty", Some("prompt")));
        }
        if body.get("n").is_some_and(|n| !n.is_null() && n.as_u64() != Some(1)) {
            return Err(Refusal::bad("this engine gives one reply: n must be 1", Some("n")));
        }
        let rules = self.length_rules(form, body, ids.len())?;
        let salt = salt(body)?;
        let prompt = TokenChain::new(salt, &ids);
        // The salt separates caches; what is said does not depend on it.
        let digest = salt.map_or_else(|| prompt.digest(), |_| TokenChain::new(None, &ids).digest());
        let own = body.get("seed").and_then(Value::as_i64).unwrap_or_default();
        let seed = fold(fold(digest, self.seed), own as u64);
        let plan = self.plan(conversation.as_ref(), body, seed, &rules);
        Ok(Generation {
            stream: flag(body, "stream"),
            usage: usage_options(body),
            prompt,
            returned_ids: (form == Form::Completions && flag(body, "return_token_ids"))
                .then_some(ids),
            plan,
            max_tokens: rules.max_tokens,
        })
    }

    /// The tokens of a conversation, as `/v1/messages/count_tokens` and `/tokenize` ask for them.
    pub fn prompt_ids(&self, form: Form, body: &Value) -> Result<Vec<u32>, Refusal> {
        let conversation = match form {
            Form::Messages => messages_conversation(body)?,
            Form::Responses => responses_conversation(body)?,
            _ if body.get("messages").is_some() => chat_conversation(body)?,
            _ => return self.completion_prompt(body),
        };
        let open = body.get("add_generation_prompt").and_then(Value::as_bool).unwrap_or(true);
        Ok(self.tokenizer.encode(&conversation.render(open)))
    }

    fn completion_prompt(&self, body: &Value) -> Result<Vec<u32>, Refusal> {
        let wrong =
            || Refusal::bad("prompt: one text or one list of token ids is needed", Some("prompt"));
        match body.get("prompt") {
            Some(Value::String(text)) => Ok(self.tokenizer.encode(&[Segment::Text(text.clone())])),
            Some(Value::Array(items)) => match items.as_slice() {
                // A batch of one is served, a larger one is not.
                [inner @ (Value::String(_) | Value::Array(_))] => {
                    self.completion_prompt(&serde_json::json!({"prompt": inner}))
                }
                ids => ids
                    .iter()
                    .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong))
                    .collect(),
            },
            _ => Err(wrong()),
        }
    }

    /// A script answers conversations whose length is not forced; all else is answered freely.
    fn plan(
        &self,
        conversation: Option<&Conversation>,
        body: &Value,
        seed: u64,
        rules: &LengthRules,
    ) -> Plan {
        if let (Some(script), Some(conversation)) = (&self.script, conversation)
            && !rules.ignore_eos
            && rules.min_tokens == 0
        {
            let forbidden = tool_choice(body) == Some("none");
            let tools = if forbidden { Vec::new() } else { conversation.tool_names() };
            let scripted = script.answer(conversation.position(), &tools);
            return Plan::scripted(&self.tokenizer, &scripted, rules);
        }
        Plan::spoken(&self.tokenizer, seed, rules)
    }

    fn length_rules(
        &self,
        form: Form,
        body: &Value,
        prompt_tokens: usize,
    ) -> Result<LengthRules, Refusal> {
        let (param, asked) = asked_tokens(form, body)?;
        let limit = self.max_model_len;
        if let Some(asked) = asked.filter(|asked| *asked > u64::from(limit)) {
            let message = format!(
                "{param}={asked} cannot be greater than max_model_len={limit}. Please request fewer \
                 output tokens. (parameter={param}, value={asked})"
            );
            return Err(Refusal::bad(message, Some(param)));
        }
        let asked = asked.map(|asked| asked as u32);
        if prompt_tokens + asked.unwrap_or(1) as usize > limit as usize {
            return Err(self.overflow(prompt_tokens, asked));
        }
        let max_tokens = asked.unwrap_or(limit - prompt_tokens as u32);
        // Messages has neither in vLLM: both are dropped silently.
        let forced = form != Form::Messages;
        let min_tokens = if forced { whole_number(body, "min_tokens")?.unwrap_or(0) } else { 0 };
        if min_tokens > u64::from(max_tokens) {
            let message = format!(
                "min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
            );
            return Err(Refusal::bad(message, Some("min_tokens")));
        }
        Ok(LengthRules {
            max_tokens,
            min_tokens: min_tokens as u32,
            ignore_eos: forced && flag(body, "ignore_eos"),
            stop: stop_texts(form, body)?,
        })
    }

    fn overflow(&self, prompt_tokens: usize, asked: Option<u32>) -> Refusal {
        let limit = self.max_model_len;
        let message = match asked {
            Some(asked) if prompt_tokens <= limit as usize => format!(
                "This model's maximum context length is {limit} tokens. However, you requested \
                 {asked} output tokens and your prompt contains {prompt_tokens} input tokens, for a \
                 total of {} tokens. Please reduce the length of the input prompt or the number of \
                 requested output tokens.",
                prompt_tokens + asked as usize
            ),
            _ => format!(
                "This model's maximum context length is {limit} tokens. However, your prompt \
                 contains {prompt_tokens} input tokens, which exceeds this limit even without any \
                 output tokens. Please reduce the length of the input prompt."
            ),
        };
        Refusal::bad(message, Some("input_tokens"))
    }
}

fn messages_conversation(body: &Value) -> Result<Conversation, Refusal> {
    Conversation::from_messages(body).map_err(|message| Refusal::bad(message, Some("messages")))
}

fn chat_conversation(body: &Value) -> Result<Conversation, Refusal> {
    Conversation::from_chat(body).map_err(|message| Refusal::bad(message, Some("messages")))
}

/// A Responses request asks what the same conversation in Chat form asks.
fn responses_conversation(body: &Value) -> Result<Conversation, Refusal> {
    if !body.get("input").is_some_and(|input| input.is_string() || input.is_array()) {
        return Err(Refusal::bad("input: a text or a list of items is needed", Some("input")));
    }
    let chat = convert_request(body, Api::Responses, Api::Chat).unwrap_or_default();
    Conversation::from_chat(&chat)
        .map_err(|_| Refusal::bad("input: it says nothing", Some("input")))
}

fn asked_tokens(form: Form, body: &Value) -> Result<(&'static str, Option<u64>), Refusal> {
    let param = match form {
        Form::Chat if body.get("max_completion_tokens").is_some_and(|it| !it.is_null()) => {
            "max_completion_tokens"
        }
        Form::Responses => "max_output_tokens",
        _ => "max_tokens",
    };
    let asked = whole_number(body, param)?;
    match (form, asked) {
        (_, Some(0)) => {
            Err(Refusal::bad(format!("{param} must be at least 1, got 0."), Some(param)))
        }
        (Form::Messages, None) => Err(Refusal::bad("max_tokens: field required", Some(param))),
        // The API's own default.
        (Form::Completions, None) => Ok((param, Some(16))),
        _ => Ok((param, asked)),
    }
}

fn whole_number(body: &Value, name: &'static str) -> Result<Option<u64>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            Refusal::bad(format!("{name} must be a whole number, got {value}"), Some(name))
        }),
    }
}

fn stop_texts(form: Form, body: &Value) -> Result<Vec<String>, Refusal> {
    let name = if form == Form::Messages { "stop_sequences" } else { "stop" };
    let wrong = || Refusal::bad(format!("{name} must be a text or a list of texts"), Some("stop"));
    match body.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(stop)) => Ok(vec![stop.clone()]),
        Some(Value::Array(stops)) => {
            stops.iter().map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn salt(body: &Value) -> Result<Option<&str>, Refusal> {
    match body.get("cache_salt") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(salt)) if !salt.is_empty() => Ok(Some(salt)),
        Some(_) => {
            let message = "Parameter 'cache_salt' must be a non-empty string if provided.";
            Err(Refusal::bad(message, Some("cache_salt")))
        }
    }
}

fn tool_choice(body: &Value) -> Option<&str> {
    match body.get("tool_choice")? {
        Value::String(choice) => Some(choice),
        choice => choice.get("type")?.as_str(),
    }
}

fn usage_options(body: &Value) -> UsageOptions {
    let options = body.get("stream_options").unwrap_or(&Value::Null);
    let at_end = flag(options, "include_usage");
    UsageOptions { at_end, continuous: at_end && flag(options, "continuous_usage_stats") }
}

fn flag(body: &Value, name: &str) -> bool {
    body.get(name).and_then(Value::as_bool).unwrap_or(false)
}
