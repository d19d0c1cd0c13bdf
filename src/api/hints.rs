//! What a request's body says about itself: the agent's session, a subagent, a side call, the results
//! it brings.
//!
//! All of it is hearsay that agents may change with any version; what it is used for is for `capture`
//! to say.

use serde_json::{Map, Value};

use super::normal_form::BILLING_LINE;
use super::{Api, ToolResult};

/// Openings of system prompts with which agents ask for nothing but a title.
const TITLE_PROMPTS: [&str; 3] = [
    "you are a title generator",
    "generate a concise, sentence-case title",
    "please write a 5-10 word title",
];
/// Openings with which they ask for other things beside their work. The third is `OpenCode`'s compaction, a conversation
/// of its own with the old one as its text; other agents' is the old one's last turn.
const SIDE_CALL_PROMPTS: [&str; 3] = [
    "summarize this coding conversation in under",
    "analyze if this message indicates a new conversation topic",
    "you are a context summarization agent",
];

/// The agent's session id. Messages: `metadata.user_id`, which is either JSON text with a `session_id`
/// or the older `user_<hash>_account_<id>_session_<uuid>`. Responses: `client_metadata.session_id`, else a
/// `prompt_cache_key` that is a UUID; other keys are shared by many sessions. Bodies of the other APIs
/// carry none.
pub(super) fn session_hint(api: Api, params: &Map<String, Value>) -> Option<String> {
    match api {
        Api::Messages => {}
        Api::Chat | Api::Completions => return None,
        Api::Responses => {
            let told = params.get("client_metadata").and_then(|it| it.get("session_id")?.as_str());
            let key = params.get("prompt_cache_key").and_then(Value::as_str);
            return told
                .filter(|it| !it.is_empty())
                .or(key.filter(|it| is_uuid(it)))
                .map(Into::into);
        }
    }
    let user_id = params.get("metadata")?.get("user_id")?.as_str()?;
    let session = match serde_json::from_str::<Value>(user_id) {
        Ok(Value::Object(fields)) => fields.get("session_id")?.as_str()?.to_owned(),
        _ => user_id.split_once("_session_")?.1.to_owned(),
    };
    (!session.is_empty()).then_some(session)
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}

/// Whether a system text is a billing line that names a subagent.
pub(super) fn is_subagent_line(text: &str) -> bool {
    text.starts_with(BILLING_LINE)
        && text.lines().next().is_some_and(|line| line.contains("cc_is_subagent=true"))
}

/// Whether the request is a side call. Conservative: it offers no tools, and it allows only one output
/// token (a quota check), or asks for JSON with a `title`, or its system prompt opens as known side
/// calls do.
pub(super) fn utility_hint(
    n_tools: u32,
    params: &Map<String, Value>,
    system: &[impl AsRef<str>],
) -> bool {
    if n_tools > 0 {
        return false;
    }
    let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let limit = limits.iter().find_map(|name| params.get(*name));
    let is_probe = limit.and_then(Value::as_u64) == Some(1);
    is_probe
        || asks_title(params, system)
        || system.iter().any(|it| opens(it.as_ref(), &SIDE_CALL_PROMPTS))
}

/// Whether a request without tools asks for a title: as JSON, or by how its system prompt opens.
pub(super) fn asks_title(params: &Map<String, Value>, system: &[impl AsRef<str>]) -> bool {
    title_schema(params).is_some() || system.iter().any(|text| opens(text.as_ref(), &TITLE_PROMPTS))
}

fn opens(text: &str, prompts: &[&str]) -> bool {
    let opening: String = text.trim_start().chars().take(80).collect();
    let opening = opening.to_lowercase();
    prompts.iter().any(|prompt| opening.starts_with(prompt))
}

/// The schema of an answer that is to hold a `title`.
pub(super) fn title_schema(params: &Map<String, Value>) -> Option<&Value> {
    let formats = [
        params.get("output_format"),
        params.get("output_config").and_then(|config| config.get("format")),
        params.get("response_format"),
        params.get("text").and_then(|text| text.get("format")),
    ];
    formats.into_iter().flatten().find_map(|format| {
        let schema = format.get("schema").or_else(|| format.get("json_schema")?.get("schema"))?;
        let is_schema = format.get("type").and_then(Value::as_str) == Some("json_schema");
        (is_schema && schema.get("properties")?.get("title").is_some()).then_some(schema)
    })
}

/// The tool results in one message.
pub(super) fn tool_results(api: Api, role: &str, message: &Map<String, Value>) -> Vec<ToolResult> {
    let content = message.get("content");
    match api {
        Api::Chat if role == "tool" => {
            let call_id = message.get("tool_call_id").and_then(Value::as_str);
            vec![ToolResult {
                call_id: call_id.unwrap_or_default().to_owned(),
                result_bytes: text_bytes(content),
                is_error: None,
            }]
        }
        Api::Chat | Api::Completions => Vec::new(),
        Api::Responses => {
            let field = |name: &str| message.get(name).and_then(Value::as_str);
            let is_result = field("type").is_some_and(|kind| kind.ends_with("_output"));
            let call_id = field("call_id").filter(|_| is_result);
            let result = call_id.map(|call_id| ToolResult {
                call_id: call_id.to_owned(),
                result_bytes: text_bytes(message.get("output")),
                is_error: None,
            });
            result.into_iter().collect()
        }
        Api::Messages => {
            let blocks = content.and_then(Value::as_array).into_iter().flatten();
            let is_result =
                |block: &&Value| block.get("type").and_then(Value::as_str) == Some("tool_result");
            let result = |block: &Value| ToolResult {
                call_id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                result_bytes: text_bytes(block.get("content")),
                // Left out, it means no error.
                is_error: Some(block["is_error"].as_bool().unwrap_or(false)),
            };
            blocks.filter(is_result).map(result).collect()
        }
    }
}

fn text_bytes(content: Option<&Value>) -> u64 {
    match content {
        Some(Value::String(text)) => text.len() as u64,
        Some(Value::Array(parts)) => {
            parts.iter().map(|part| text_bytes(part.get("text").or(Some(part)))).sum()
        }
        _ => 0,
    }
}
