//! An answer of the engine in the items of a Responses request, and the recorded results after it tied to
//! its calls; see `answer`, whose rules these are.
//!
//! Pure. An answer is several items: reasoning, text, and an item for each call. A call of a tool that
//! takes plain text (`custom`) has an item of its own kind, and so has its result.

use serde_json::{Value, json};

use super::answer::{
    Call, EMPTY_RESULT, NO_RESULT, Pairing, Placed, Recorded, live_calls, object, object_or_text,
    text,
};
use crate::api::ReplyBlock;

/// Puts an answer into the items of a request: `recorded` are the items that it replaces, `after` what
/// follows them up to the next answer, `custom` the names of the tools that take plain text.
pub(super) fn place_in_responses(
    answer: &[ReplyBlock],
    recorded: &[Recorded<'_>],
    after: &[Recorded<'_>],
    custom: &[String],
) -> Placed {
    let live = live_calls(answer);
    let is_call = |item: &&Recorded<'_>| text(&item.value, "type").ends_with("_call");
    let recorded_calls: Vec<Call> = recorded
        .iter()
        .filter(is_call)
        .map(|item| Call {
            id: text(&item.value, "call_id").into(),
            name: text(&item.value, "name").into(),
        })
        .collect();
    let (results, rest): (Vec<_>, Vec<_>) =
        after.iter().partition(|item| text(&item.value, "type").ends_with("_call_output"));
    let result_ids: Vec<String> =
        results.iter().map(|item| text(&item.value, "call_id").to_owned()).collect();
    let mut pairing = Pairing::new(answer, &live, &recorded_calls, &result_ids);
    pairing.departures.arguments_malformed = answer
        .iter()
        .filter(|block| match block {
            ReplyBlock::ToolCall { name, arguments, .. } => {
                !custom.contains(name) && object(arguments).is_none()
            }
            _ => false,
        })
        .count() as u32;

    let kind_of_result = |call: &Call| {
        let is_custom = custom.contains(&call.name);
        if is_custom { "custom_tool_call_output" } else { "function_call_output" }
    };
    let mut items: Vec<String> = items_of(answer, custom).iter().map(Value::to_string).collect();
    let mut surplus = Vec::new();
    for (result, call) in results.into_iter().zip(&pairing.call_of_result) {
        if let Some(call) = call.map(|call| &live[call]) {
            let mut result = result.value.clone();
            result["type"] = kind_of_result(call).into();
            result["call_id"] = call.id.as_str().into();
            items.push(result.to_string());
        } else {
            surplus.push(json!({"type": "input_text", "text": output_text(&result.value)}));
        }
    }
    items.extend(pairing.unanswered.iter().map(|call| {
        let call = &live[*call];
        json!({"type": kind_of_result(call), "call_id": call.id, "output": NO_RESULT}).to_string()
    }));
    if !surplus.is_empty() {
        items.push(json!({"type": "message", "role": "user", "content": surplus}).to_string());
    }
    items.extend(rest.into_iter().map(|item| item.raw.to_owned()));
    Placed { messages: items, departures: pairing.departures }
}

/// The names of a request's tools that take plain text.
pub(super) fn custom_tools(tools: &[&str]) -> Vec<String> {
    let read = tools.iter().filter_map(|tool| serde_json::from_str::<Value>(tool).ok());
    let custom = read.filter(|tool| text(tool, "type") == "custom");
    custom.map(|tool| text(&tool, "name").to_owned()).collect()
}

fn items_of(answer: &[ReplyBlock], custom: &[String]) -> Vec<Value> {
    let item = |(index, block): (usize, &ReplyBlock)| match block {
        ReplyBlock::Text { text } if text.is_empty() => None,
        ReplyBlock::Text { text } => Some(json!({"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}]})),
        ReplyBlock::Reasoning { text, signature } => {
            // A reasoning item has to have a name; nobody looks it up.
            let mut item = json!({"type": "reasoning", "id": format!("rs_live_{index}"),
                "summary": [], "content": [{"type": "reasoning_text", "text": text}]});
            if let Some(signature) = signature {
                item["encrypted_content"] = signature.as_str().into();
            }
            Some(item)
        }
        ReplyBlock::ToolCall { id, name, arguments } if custom.contains(name) => Some(json!({
            "type": "custom_tool_call", "call_id": id, "name": name, "input": arguments})),
        ReplyBlock::ToolCall { id, name, arguments } => {
            let arguments = match object(arguments) {
                Some(_) if !arguments.trim().is_empty() => arguments.clone(),
                _ => object_or_text(arguments).to_string(),
            };
            Some(json!({"type": "function_call", "call_id": id, "name": name,
                "arguments": arguments}))
        }
    };
    answer.iter().enumerate().filter_map(item).collect()
}

/// The text of a result.
fn output_text(result: &Value) -> String {
    let output = result.get("output").unwrap_or(&Value::Null);
    let said = match output {
        Value::String(said) => said.clone(),
        Value::Array(parts) => {
            parts.iter().map(|part| text(part, "text")).collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    };
    if said.is_empty() { EMPTY_RESULT.to_owned() } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> ReplyBlock {
        ReplyBlock::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    fn said(text: &str) -> ReplyBlock {
        ReplyBlock::Text { text: text.into() }
    }

    /// The items that come of an answer, a recorded answer and what follows it.
    fn place(answer: &[ReplyBlock], recorded: &Value, after: &Value) -> (Value, Placed) {
        let texts = |items: &Value| -> Vec<String> {
            items.as_array().unwrap().iter().map(Value::to_string).collect()
        };
        let (recorded, after) = (texts(recorded), texts(after));
        let recorded: Vec<Recorded<'_>> =
            recorded.iter().map(|raw| Recorded::read(raw).unwrap()).collect();
        let after: Vec<Recorded<'_>> =
            after.iter().map(|raw| Recorded::read(raw).unwrap()).collect();
        let placed = place_in_responses(answer, &recorded, &after, &["patch".to_owned()]);
        let items = placed.messages.iter().map(|item| serde_json::from_str::<Value>(item).unwrap());
        (items.collect(), placed)
    }

    #[test]
    fn results_follow_the_calls_of_the_answer() {
        let recorded = json!([
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "r1", "name": "exec", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "r2", "name": "patch", "input": "x"}]);
        let user = json!({"type": "message", "role": "user", "content": "go on"});
        let after = json!([
            {"type": "custom_tool_call_output", "call_id": "r2", "output": "done"},
            {"type": "function_call_output", "call_id": "r1", "output": "four"},
            user]);
        let answer = [
            ReplyBlock::Reasoning { text: "hm".into(), signature: None },
            said("I look."),
            call("l1", "exec", r#"{"cmd":"ls"}"#),
            call("l2", "patch", "*** y"),
        ];
        let (items, placed) = place(&answer, &recorded, &after);
        assert_eq!(
            items,
            json!([
                {"type": "reasoning", "id": "rs_live_0", "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "l1", "name": "exec",
                    "arguments": "{\"cmd\":\"ls\"}"},
                {"type": "custom_tool_call", "call_id": "l2", "name": "patch", "input": "*** y"},
                {"type": "custom_tool_call_output", "call_id": "l2", "output": "done"},
                {"type": "function_call_output", "call_id": "l1", "output": "four"},
                user,
            ])
        );
        assert_eq!(placed.departures, super::super::answer::Departures::default());
    }

    #[test]
    fn what_does_not_fit_is_said_in_text_and_counted() {
        let recorded =
            json!([{"type": "function_call", "call_id": "r1", "name": "exec", "arguments": "{}"}]);
        let after = json!([{"type": "function_call_output", "call_id": "r1",
            "output": [{"type": "input_text", "text": "four"}]}]);
        let (items, placed) = place(&[said("Done.")], &recorded, &after);
        assert_eq!(
            items[1],
            json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": "four"}]})
        );
        assert_eq!(placed.departures.results_as_text, 1);

        let answer = [call("l1", "exec", "not json"), call("l2", "other", "")];
        let (items, placed) = place(&answer, &recorded, &after);
        assert_eq!(items[0]["arguments"], r#"{"arguments":"not json"}"#);
        assert_eq!(items[1]["arguments"], "{}");
        assert_eq!(items[2]["call_id"], "l1");
        assert_eq!(
            items[3],
            json!({"type": "function_call_output", "call_id": "l2", "output": NO_RESULT})
        );
        let departures = placed.departures;
        assert_eq!((departures.calls_unanswered, departures.arguments_malformed), (1, 1));
    }

    #[test]
    fn custom_tools_are_known_by_their_type() {
        let tools = [
            r#"{"type":"custom","name":"patch"}"#,
            r#"{"type":"function","name":"exec"}"#,
            r#"{"type":"web_search"}"#,
        ];
        assert_eq!(custom_tools(&tools), ["patch"]);
    }
}
