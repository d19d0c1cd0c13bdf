//! All four APIs through the proxy to the embedded engine: what each becomes in the tables, and the
//! recording replayed.

use std::collections::BTreeSet;

use agentbench::api::{Api, Reply, ReplyBlock, ReplyDecoder, parse_reply};
use agentbench::replay::{ApiChoice, LengthForcing};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::trace::Run;
use agentbench::trace::record::{
    Outcome, OutputLength, RequestStatus, ServerHistory, TurnKind, UnitRow,
};
use serde_json::{Value, json};

use crate::replay::recording::{Replayed, Running, config};
use crate::wire::{Recorded, Setup, must};

/// A proxy before an embedded engine, and a client of the proxy.
struct Chain {
    engine: Simulator,
    setup: Setup,
    client: reqwest::Client,
}

impl Chain {
    async fn start(script: Option<&Value>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script.json");
        std::fs::write(&path, script.map(Value::to_string).unwrap_or_default()).unwrap();
        let engine = embedded(script.map(|_| path)).await;
        let url = engine.url();
        let setup = Setup::start_with(|config| config.upstreams = vec![url]).await;
        Self { engine, setup, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn post(&self, path: &str, body: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.setup.capture.local_addr());
        let request = self.client.post(url).header("content-type", "application/json");
        let response = must(request.body(body.to_owned()).send()).await.unwrap();
        (response.status().as_u16(), must(response.text()).await.unwrap())
    }

    async fn ask(&self, api: Api, body: &Value) -> Reply {
        let (status, text) = self.post(api.path(), &body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        if body["stream"] != true {
            return parse_reply(api, text.as_bytes());
        }
        let mut decoder = ReplyDecoder::new(api);
        decoder.feed(text.as_bytes());
        decoder.finish()
    }
}

async fn embedded(script: Option<std::path::PathBuf>) -> Simulator {
    let profile = Profile::named("instant").unwrap();
    let config = SimulatorConfig::new(([127, 0, 0, 1], 0).into(), profile);
    Simulator::start(SimulatorConfig { script, ..config }).await.unwrap()
}

/// A request for a short answer in the form of an API, with a tool where it has any.
fn body(api: Api, stream: bool) -> Value {
    let mut body = json!({"model": "agentbench-sim", "stream": stream});
    let more = match api {
        Api::Messages => json!({"max_tokens": 20, "system": "Be brief.",
            "messages": [{"role": "user", "content": "hello there"}],
            "tools": [{"name": "exec", "input_schema": {}}]}),
        Api::Chat => json!({"max_tokens": 20, "stream_options": {"include_usage": true},
            "messages": [{"role": "system", "content": "Be brief."},
                         {"role": "user", "content": "hello there"}],
            "tools": [{"type": "function", "function": {"name": "exec", "parameters": {}}}]}),
        Api::Completions => json!({"max_tokens": 20, "prompt": [11, 12, 13],
            "stream_options": {"include_usage": true}}),
        Api::Responses => json!({"max_output_tokens": 20, "instructions": "Be brief.",
            "input": "hello there", "store": false,
            "tools": [{"type": "function", "name": "exec", "parameters": {}}]}),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn every_api_is_recorded_streamed_and_whole_with_the_engines_own_counts() {
    let chain = Chain::start(None).await;
    let mut sent = Vec::new();
    for api in Api::ALL {
        for stream in [true, false] {
            let body = body(api, stream);
            sent.push((api, body.to_string(), chain.ask(api, &body).await));
        }
    }
    for path in ["/v1/messages/count_tokens", "/tokenize"] {
        let body = json!({"messages": [{"role": "user", "content": "x"}]}).to_string();
        assert_eq!(chain.post(path, &body).await.0, 200);
    }
    chain.setup.recorded(sent.len() as u64).await;
    let stats = chain.engine.stats();
    let recorded = chain.setup.finish().await;
    chain.engine.stop().await;
    assert_eq!((recorded.stats.side_requests, recorded.stats.side_count_tokens), (2, 2));
    assert_eq!(recorded.turns.len(), sent.len());
    for ((api, body, reply), row) in sent.iter().zip(&recorded.turns) {
        let stream = body.contains("\"stream\":true");
        assert_eq!((row.api.as_str(), row.path.as_str()), (api.as_str(), api.path()));
        assert_eq!((row.outcome, &row.error, row.stream), (Outcome::Ok, &None, stream), "{api:?}");
        assert_eq!(row.model.as_deref(), Some("agentbench-sim"));
        assert_eq!((row.kind, row.server_history), (TurnKind::Main, None));
        let counts = match api {
            Api::Messages | Api::Responses => (1, 1),
            Api::Chat => (2, 1),
            Api::Completions => (0, 0),
        };
        assert_eq!((row.n_messages, row.n_tools), counts, "{api:?}");
        let reason = match api {
            Api::Messages => "max_tokens",
            Api::Chat | Api::Completions => "length",
            Api::Responses => "max_output_tokens",
        };
        assert_eq!(row.stop_reason.as_deref(), Some(reason));
        assert_eq!((row.osl, row.osl_text.len()), (Some(20), 80), "{api:?}");
        assert_eq!(
            (row.isl, row.isl_cached),
            (reply.usage.prompt_tokens, reply.usage.cached_tokens)
        );
        assert_eq!((row.ttft_ms.is_some(), row.itl_ms_mean.is_some()), (stream, stream));
        assert_eq!(row.output_offsets_us.len(), if stream { 20 } else { 0 }, "{api:?}");
        assert_eq!(recorded.run.request_body(row).unwrap(), body.as_bytes());
    }
    // Four bytes are a token; the same conversation is the same prompt in three APIs.
    let isl: BTreeSet<u64> = recorded.turns.iter().filter_map(|row| row.isl).collect();
    assert_eq!((isl.len(), isl.first()), (2, Some(&3)));
    let sum = |of: &dyn Fn(&agentbench::trace::record::TurnRow) -> Option<u64>| {
        recorded.turns.iter().filter_map(of).sum::<u64>()
    };
    assert_eq!(sum(&|row| row.isl), stats.prompt_tokens);
    assert_eq!(sum(&|row| row.osl), stats.generation_tokens);
    assert_eq!(sum(&|row| row.isl_cached), stats.cached_tokens);
}

fn script() -> Value {
    json!([
        {"text": "I look.", "tool": "exec", "arguments": {"cmd": "ls"}},
        {"tool": "apply_patch", "arguments": {"input": "*** x"}},
        {"text": "All done."},
    ])
}

/// What an agent sends of a tool loop over Responses: the whole conversation each time, or only what is
/// new after what the server keeps.
async fn tool_loop(chain: &Chain, with_history: bool) -> Vec<Reply> {
    let mut conversation = vec![json!({"role": "user", "content": "fix app.py"})];
    let mut new = conversation.clone();
    let mut replies: Vec<Reply> = Vec::new();
    for _ in 0..3 {
        let mut body = json!({
            "model": "agentbench-sim", "stream": true, "instructions": "You fix code.",
            "tools": [{"type": "function", "name": "exec", "parameters": {"type": "object"}},
                      {"type": "custom", "name": "apply_patch"}],
        });
        let previous = replies.last().and_then(|reply| reply.response_id.clone());
        if with_history {
            (body["input"], body["store"]) = (json!(conversation), json!(false));
        } else {
            (body["input"], body["previous_response_id"]) = (json!(new), json!(previous));
        }
        let reply = chain.ask(Api::Responses, &body).await;
        let items = reply.items.iter().map(|item| serde_json::from_str::<Value>(item).unwrap());
        conversation.extend(items);
        new.clear();
        for block in &reply.blocks {
            if let ReplyBlock::ToolCall { id, name, .. } = block {
                let kind = if name == "exec" { "function_call" } else { "custom_tool_call" };
                let kind = format!("{kind}_output");
                new.push(json!({"type": kind, "call_id": id, "output": format!("out of {name}")}));
            }
        }
        conversation.extend(new.clone());
        replies.push(reply);
    }
    replies
}

fn check_loop(recorded: &Recorded, replies: &[Reply], history: Option<ServerHistory>) {
    let turns = &recorded.turns[..3];
    let places: Vec<(u32, u32, u32)> =
        turns.iter().map(|row| (row.turn, row.n_messages, row.n_shared_units)).collect();
    // Instructions, two tools and the task; then text, call and result; then call and result.
    assert_eq!(places, [(0, 1, 0), (1, 4, 4), (2, 6, 7)]);
    assert_eq!(turns.iter().map(|row| &row.thread_id).collect::<BTreeSet<_>>().len(), 1);
    for (row, reply) in turns.iter().zip(replies) {
        assert_eq!((row.isl, row.osl), (reply.usage.prompt_tokens, reply.usage.completion_tokens));
        assert_eq!(row.server_history, history.filter(|_| row.turn > 0));
        assert_eq!(row.stop_reason.as_deref(), Some("completed"));
    }
    let isl: Vec<u64> = turns.iter().filter_map(|row| row.isl).collect();
    assert!(isl.is_sorted() && turns[1].isl_cached > Some(0), "{isl:?}");
    let calls: Vec<(&str, &str, Option<u64>, bool)> = recorded
        .calls
        .iter()
        .map(|c| (c.name.as_str(), c.arguments.as_str(), c.result_bytes, c.wire_ms.is_some()))
        .collect();
    assert_eq!(
        calls,
        [("exec", r#"{"cmd":"ls"}"#, Some(11), true), ("apply_patch", "*** x", Some(18), true)]
    );
}

/// The recording on another engine, which never saw a part of it.
async fn replayed(recorded: Recorded, api: ApiChoice) -> Replayed {
    let engine = embedded(None).await;
    let mut config = config(engine.url());
    config.api = api;
    let path = recorded.run.dir().to_path_buf();
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start_run(Run::open(&path).unwrap(), dir, config).await.unwrap();
    let replayed = running.wait().await;
    engine.stop().await;
    drop(recorded);
    replayed
}

async fn check_replay(recorded: Recorded, api: ApiChoice, sent: &str) {
    let turns = recorded.turns.clone();
    let replayed = Box::pin(replayed(recorded, api)).await;
    let route = &replayed.summary.settings.routes[0];
    assert_eq!((route.recorded.as_str(), route.sent.as_str()), ("responses", sent));
    assert_eq!(route.output_length, LengthForcing::Honoured);
    assert_eq!(replayed.requests.len(), 3);
    for turn in &turns[..3] {
        let row = replayed.row(&turn.request_id);
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        // The prompt is whole: the engine counts what it counted when it was recorded.
        assert_eq!((row.prompt_tokens, row.completion_tokens), (turn.isl, turn.osl));
        assert_eq!(row.output_length, OutputLength::Ok);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_over_responses_is_one_thread_and_is_replayed() {
    let chain = Chain::start(Some(&script())).await;
    let replies = tool_loop(&chain, true).await;
    assert_eq!(replies[2].text(), "All done.");
    chain.setup.recorded(3).await;
    let recorded = chain.setup.finish().await;
    chain.engine.stop().await;
    check_loop(&recorded, &replies, None);
    Box::pin(check_replay(recorded, ApiChoice::Auto, "responses")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_keeps_is_followed_so_that_the_prompt_is_whole() {
    let chain = Chain::start(Some(&script())).await;
    let replies = tool_loop(&chain, false).await;
    let lost =
        json!({"model": "agentbench-sim", "input": "go on", "previous_response_id": "resp_0"});
    let (status, text) = chain.post("/v1/responses", &lost.to_string()).await;
    assert_eq!((status, text.contains("'resp_0' not found")), (404, true), "{text}");
    chain.setup.recorded(4).await;
    let recorded = chain.setup.finish().await;
    chain.engine.stop().await;
    check_loop(&recorded, &replies, Some(ServerHistory::Followed));
    // Nothing is made up of what was not seen.
    let row = &recorded.turns[3];
    assert_eq!((row.server_history, row.n_messages), (Some(ServerHistory::Unknown), 1));
    assert_eq!(recorded.stats.prompts_incomplete, 1);
    // Each text is stored once, and each body is the one that was sent.
    let units: Vec<UnitRow> = recorded.run.rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(units.len(), 1 + 2 + 6 + 1, "{units:#?}");
    let second = recorded.run.request_body(&recorded.turns[1]).unwrap();
    let second: Value = serde_json::from_slice(&second).unwrap();
    assert_eq!(second["input"].as_array().unwrap().len(), 1);
    assert_eq!(second["previous_response_id"], json!(replies[0].response_id));
    Box::pin(check_replay(recorded, ApiChoice::Chat, "chat")).await;
}
