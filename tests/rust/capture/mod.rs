//! What the proxy writes down of exchanges played over raw TCP, a module per topic; here is how one is played.

mod bodies;
mod endings;
mod privacy;
mod rows;

use agentbench::trace::record::{Record, TurnRow};
use serde_json::{Value, json};

use crate::wire::{Recorded, Setup};

/// One `data:` event of a Messages stream.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// A Messages stream of a text and, where named, a tool call; usage says 30 in (20 cached), 7 out.
fn message_events(text: &str, call: Option<(&str, &str)>) -> Vec<String> {
    let mut events = vec![
        event(&json!({"type": "message_start", "message": {"id": "m", "role": "assistant",
            "model": "tiny", "content": [], "usage": {"input_tokens": 10,
            "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "output_tokens": 1}}})),
        event(&json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}})),
        event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})),
        event(&json!({"type": "content_block_stop", "index": 0})),
    ];
    if let Some((id, name)) = call {
        events.extend([
            event(&json!({"type": "content_block_start", "index": 1, "content_block":
                {"type": "tool_use", "id": id, "name": name, "input": {}}})),
            event(&json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "{\"command\":\"ls\"}"}})),
            event(&json!({"type": "content_block_stop", "index": 1})),
        ]);
    }
    let stop = if call.is_some() { "tool_use" } else { "end_turn" };
    events.push(event(&json!({"type": "message_delta", "delta": {"stop_reason": stop},
        "usage": {"output_tokens": 7}})));
    events.push(event(&json!({"type": "message_stop"})));
    events
}

const SYSTEM: &str =
    r#""system":[{"type":"text","text":"You fix code.","cache_control":{"type":"ephemeral"}}]"#;

const TOOLS: &str = r#""tools":[{"name":"Bash","input_schema":{"type":"object"}}]"#;

const TASK: &str = r#"{"role":"user","content":[{"type":"text","text":"fix app.py"}]}"#;

/// A Messages body as an agent sends it, with odd spacing that must come back.
fn messages_body(messages: &[&str]) -> String {
    let messages = messages.join(", ");
    format!(
        r#"{{"model":"tiny",  {SYSTEM}, {TOOLS},"max_tokens":64,"stream":true,"messages":[{messages}] }}"#
    )
}

/// Plays one exchange: the client posts, the engine streams the events, both ends see all of it.
async fn play(setup: &Setup, path: &str, headers: &str, body: &str, events: &[String]) {
    let mut client = setup.client().await;
    client.post(path, headers, body.as_bytes()).await;
    let mut engine = setup.engine().await;
    assert_eq!(engine.read_message().await.1, body.as_bytes());
    engine.begin_stream().await;
    client.read_head().await;
    for event in events {
        engine.send_chunk(event).await;
        assert_eq!(client.read_chunk().await, event.as_bytes());
    }
    engine.end_stream().await;
    assert!(client.read_chunk().await.is_empty());
}

fn body_of(recorded: &Recorded, turn: &TurnRow) -> String {
    String::from_utf8(recorded.run.request_body(turn).unwrap()).unwrap()
}

/// A row type's rows.
trait Rows {
    fn rows<T: Record>(&self) -> Vec<T>;
}

impl Rows for Recorded {
    fn rows<T: Record>(&self) -> Vec<T> {
        self.run.rows::<T>().unwrap().map(Result::unwrap).collect()
    }
}
