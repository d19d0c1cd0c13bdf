//! The embedded engine over real sockets: what its replies say, what its metrics page says, and that
//! the two agree.

use std::path::PathBuf;
use std::time::Duration;

use agentbench::Error;
use agentbench::api::{Api, Reply, ReplyBlock, ReplyDecoder, parse_reply};
use agentbench::engine::control::Control;
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use reqwest::Client;
use serde_json::{Value, json};

use crate::wire::must;

/// A simulated engine and a client of it.
struct Engine {
    simulator: Simulator,
    client: Client,
}

fn config() -> SimulatorConfig {
    SimulatorConfig::new(([127, 0, 0, 1], 0).into(), Profile::named("instant").unwrap())
}

impl Engine {
    async fn start(config: SimulatorConfig) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().unwrap();
        Self { simulator: Simulator::start(config).await.unwrap(), client }
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let url = format!("{}{path}", self.simulator.url());
        let response = must(self.client.post(url).body(body.to_string()).send()).await.unwrap();
        (response.status().as_u16(), must(response.text()).await.unwrap())
    }

    async fn get(&self, path: &str) -> String {
        let url = format!("{}{path}", self.simulator.url());
        let response = must(self.client.get(url).send()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.unwrap()
    }

    /// Sends a request and reads the reply, streamed or whole.
    async fn ask(&self, api: Api, mut body: Value, stream: bool) -> Reply {
        body["model"] = "agentbench-sim".into();
        body["stream"] = stream.into();
        if matches!(api, Api::Chat | Api::Completions) && stream {
            body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
        }
        let (status, text) = self.post(api.path(), &body).await;
        assert_eq!(status, 200, "{text}");
        if !stream {
            return parse_reply(api, text.as_bytes());
        }
        let mut decoder = ReplyDecoder::new(api);
        let mut chunks = 0;
        let mut tokens = 0;
        let mut largest = 0;
        for event in text.split_inclusive("\n\n") {
            let fed = decoder.feed(event.as_bytes());
            chunks += u64::from(fed.output_chunks);
            if let Some(so_far) = fed.completion_tokens_so_far {
                largest = largest.max(so_far - tokens);
                tokens = so_far;
            }
        }
        let reply = decoder.finish();
        assert!(reply.complete && reply.error.is_none(), "{text}");
        let words = reply.blocks.iter().all(|block| matches!(block, ReplyBlock::Text { .. }));
        if words {
            // A chunk for every token, but for the one that ends the turn.
            let silent =
                u64::from(matches!(reply.stop_reason.as_deref(), Some("stop" | "end_turn")));
            assert_eq!(chunks + silent, reply.usage.completion_tokens.unwrap());
            assert!(largest <= 1, "a chunk of {largest} tokens");
        }
        reply
    }

    /// The sum of a family's series on the metrics page.
    async fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics").await;
        let series = page.lines().filter(|line| {
            line.strip_prefix("vllm:")
                .and_then(|it| it.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with('{'))
        });
        let values: Vec<f64> =
            series.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(!values.is_empty(), "{name} is not on the page");
        values.iter().sum::<f64>() as u64
    }

    async fn stop(self) {
        must(self.simulator.stop()).await;
    }
}

fn say(text: &str, max_tokens: u32) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens})
}

fn words(reply: &Reply) -> &str {
    match reply.blocks.as_slice() {
        [] => "",
        [ReplyBlock::Text { text }] => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn usage_and_metrics_agree_exactly() {
    let engine = Engine::start(config()).await;
    let (mut prompt, mut output, mut cached, mut requests) = (0, 0, 0, 0);
    let long = "many words ".repeat(300);
    for (api, stream) in
        [(Api::Messages, true), (Api::Messages, false), (Api::Chat, true), (Api::Chat, false)]
    {
        // The second prompt has 16 tokens: a full block, whose usage shows no input beside the cache.
        for text in ["short", "these 32 bytes are eight tokens.", long.as_str()] {
            let usage = engine.ask(api, say(text, 30), stream).await.usage;
            prompt += usage.prompt_tokens.unwrap();
            output += usage.completion_tokens.unwrap();
            cached += usage.cached_tokens.unwrap();
            requests += 1;
        }
    }
    // Three of the four long prompts: 833 tokens each, of which 52 blocks are found.
    assert_eq!(cached, 3 * 52 * 16);
    for (name, value) in [
        ("prompt_tokens_total", prompt),
        ("prompt_tokens_by_source_total", prompt),
        ("generation_tokens_total", output),
        ("prompt_tokens_cached_total", cached),
        ("prefix_cache_queries_total", prompt),
        ("prefix_cache_hits_total", cached),
        ("request_success_total", requests),
        ("request_prompt_tokens_sum", prompt),
        ("request_generation_tokens_sum", output),
        ("request_prefill_kv_computed_tokens_sum", prompt - cached),
        ("e2e_request_latency_seconds_count", requests),
        ("time_to_first_token_seconds_count", requests),
        ("inter_token_latency_seconds_count", output - requests),
        ("iteration_tokens_total_sum", prompt - cached + output),
        ("num_requests_running", 0),
        ("num_requests_waiting", 0),
    ] {
        assert_eq!(engine.metric(name).await, value, "{name}");
    }
    let stats = engine.simulator.stats();
    assert_eq!((stats.prompt_tokens, stats.cached_tokens), (prompt, cached));
    assert_eq!((stats.generation_tokens, stats.finished), (output, requests));
    engine.stop().await;
}

#[tokio::test]
async fn both_apis_say_the_same_streamed_and_whole() {
    let engine = Engine::start(config()).await;
    let mut replies = Vec::new();
    for api in [Api::Messages, Api::Chat] {
        for stream in [true, false] {
            replies.push(engine.ask(api, say("tell me", 4_000), stream).await);
        }
    }
    for reply in &replies {
        assert_eq!(words(reply), words(&replies[0]));
        assert_eq!(reply.usage.completion_tokens, replies[0].usage.completion_tokens);
        assert_eq!(reply.usage.prompt_tokens, replies[0].usage.prompt_tokens);
        assert_eq!(reply.model.as_deref(), Some("agentbench-sim"));
    }
    assert!(words(&replies[0]).len() > 20);
    let reasons: Vec<_> = replies.iter().map(|it| it.stop_reason.as_deref().unwrap()).collect();
    assert_eq!(reasons, ["end_turn", "end_turn", "stop", "stop"]);
    engine.stop().await;
}

#[tokio::test]
async fn a_seed_says_the_same_again_whatever_the_order() {
    let first = Engine::start(config()).await;
    let second = Engine::start(config()).await;
    let other = Engine::start(SimulatorConfig { seed: 1, ..config() }).await;
    let ask = async |engine: &Engine, text: &str| engine.ask(Api::Chat, say(text, 900), true).await;
    let (a, b) = (ask(&first, "a").await, ask(&first, "b").await);
    let (b_again, a_again) = tokio::join!(ask(&second, "b"), ask(&second, "a"));
    assert_eq!((words(&a), a.usage), (words(&a_again), a_again.usage));
    assert_eq!((words(&b), b.usage), (words(&b_again), b_again.usage));
    assert_ne!(words(&a), words(&b));
    assert_ne!(words(&a), words(&ask(&other, "a").await));
    for engine in [first, second, other] {
        engine.stop().await;
    }
}

#[tokio::test]
async fn lengths_are_forced_exactly_where_vllm_forces_them() {
    let engine = Engine::start(config()).await;
    for tokens in [1_u32, 2, 50, 777] {
        let mut body = say("go", tokens);
        body["min_tokens"] = tokens.into();
        body["ignore_eos"] = true.into();
        for stream in [true, false] {
            let reply = engine.ask(Api::Chat, body.clone(), stream).await;
            assert_eq!(reply.usage.completion_tokens, Some(u64::from(tokens)));
            assert_eq!(reply.stop_reason.as_deref(), Some("length"));
            assert_eq!(words(&reply).len(), tokens as usize * 4);
        }
        let body = json!({
            "model": "agentbench-sim", "prompt": [1, 2, 3], "max_tokens": tokens,
            "ignore_eos": true,
        });
        let (_, text) = engine.post("/v1/completions", &body).await;
        let reply: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(reply["usage"]["completion_tokens"], tokens);
        assert_eq!(reply["usage"]["prompt_tokens"], 3);
    }
    // Messages drops both: the reply ends by itself.
    let mut body = say("go", 100_000);
    body["ignore_eos"] = true.into();
    let reply = engine.ask(Api::Messages, body, true).await;
    assert_eq!(reply.stop_reason.as_deref(), Some("end_turn"));
    // A stop text ends a reply and is left out of it.
    let mut body = say("go", 4_000);
    body["stop"] = json!([". "]);
    let stopped = engine.ask(Api::Chat, body, false).await;
    assert!(!words(&stopped).contains('.') && !words(&stopped).is_empty());
    engine.stop().await;
}

#[tokio::test]
async fn the_second_turn_hits_the_first_in_either_api() {
    let engine = Engine::start(config()).await;
    let question = "x".repeat(400);
    let first = engine.ask(Api::Messages, say(&question, 5_000), true).await;
    assert_eq!(first.usage.cached_tokens, Some(0));
    let (prompt, output) =
        (first.usage.prompt_tokens.unwrap(), first.usage.completion_tokens.unwrap());
    // Start, "user\n" (2), the question (100), end; start, "assistant\n" (3).
    assert_eq!(prompt, 1 + 2 + 100 + 1 + 1 + 3);
    let body = json!({"max_tokens": 5, "messages": [
        {"role": "user", "content": question},
        {"role": "assistant", "content": words(&first)},
        {"role": "user", "content": "go on"},
    ]});
    // All computed so far is prompt and output but for the last token; its full blocks are found.
    let hits = (prompt + output - 1) / 16 * 16;
    let second = engine.ask(Api::Chat, body.clone(), true).await;
    assert_eq!(second.usage.cached_tokens, Some(hits));
    // Prompt, the reply, start, "user\n" (2), "go on" (2), end, start, "assistant\n" (3).
    assert_eq!(second.usage.prompt_tokens, Some(prompt + output + 10));

    // Another salt isolates the whole prompt, the same salt finds it again.
    let mut salted = body.clone();
    salted["cache_salt"] = "a".into();
    let other = engine.ask(Api::Messages, salted.clone(), true).await;
    assert_eq!(other.usage.cached_tokens, Some(0));
    assert_eq!(words(&other), words(&second), "a salt changes no word");
    let again = engine.ask(Api::Chat, salted, false).await;
    assert_eq!(again.usage.cached_tokens, Some((prompt + output + 9) / 16 * 16));

    let (_, reset) = engine.post("/reset_prefix_cache", &json!({})).await;
    assert_eq!(reset, r#"{"success":true}"#);
    let cold = engine.ask(Api::Chat, body, false).await;
    assert_eq!(cold.usage.cached_tokens, Some(0));
    engine.stop().await;
}

#[tokio::test]
async fn completions_serve_a_conversation_by_its_token_ids() {
    let engine = Engine::start(config()).await;
    let talk = say(&"x".repeat(400), 30);
    let chat = engine.ask(Api::Chat, talk.clone(), true).await;
    let (_, text) = engine.post("/tokenize", &json!({"messages": talk["messages"]})).await;
    let tokens: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(tokens["count"], chat.usage.prompt_tokens.unwrap());
    // The same tokens by another road: counted exactly, found in the cache, answered alike.
    let raw = json!({"prompt": tokens["tokens"], "max_tokens": 30});
    for (prompt, stream) in [(&tokens["tokens"], true), (&json!([tokens["tokens"]]), false)] {
        let mut raw = raw.clone();
        raw["prompt"] = prompt.clone();
        let reply = engine.ask(Api::Completions, raw, stream).await;
        assert_eq!(reply.usage.prompt_tokens, chat.usage.prompt_tokens);
        assert_eq!(reply.usage.cached_tokens, Some((112 - 1) / 16 * 16));
        assert_eq!(reply.usage.completion_tokens, chat.usage.completion_tokens);
        assert_eq!((words(&reply), &reply.stop_reason), (words(&chat), &chat.stop_reason));
    }
    // Ids come back when asked for, the prompt's with the first chunk.
    let mut body = raw.clone();
    body["return_token_ids"] = true.into();
    let (_, whole) = engine.post("/v1/completions", &body).await;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let choice = &whole["choices"][0];
    assert_eq!(choice["prompt_token_ids"], tokens["tokens"]);
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 30);
    body["stream"] = true.into();
    let (_, stream) = engine.post("/v1/completions", &body).await;
    let chunks: Vec<Value> = stream
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .map(|chunk: Value| chunk["choices"][0].clone())
        .collect();
    let ids: Vec<&Value> = chunks.iter().flat_map(|c| c["token_ids"].as_array().unwrap()).collect();
    assert_eq!(ids, choice["token_ids"].as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!(chunks[0]["prompt_token_ids"], tokens["tokens"]);
    assert!(chunks[1..].iter().all(|chunk| chunk["prompt_token_ids"].is_null()));
    let control = Control::new(&engine.simulator.url()).unwrap();
    assert!(control.takes_token_ids("agentbench-sim").await.unwrap());
    engine.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let mut slow = config();
    // A token every 20 ms: a reply of 10,000 cannot end within the test.
    slow.profile.timing.step_us = 20_000.0;
    slow.max_num_seqs = Some(1);
    let engine = Engine::start(slow).await;
    let mut body = say("go", 10_000);
    body["ignore_eos"] = true.into();
    body["stream"] = true.into();
    let url = format!("{}/v1/chat/completions", engine.simulator.url());
    let mut running = must(engine.client.post(&url).body(body.to_string()).send()).await.unwrap();
    must(running.chunk()).await.unwrap().unwrap();
    // The second one waits for the first, which holds the only place.
    body["stream"] = false.into();
    let waiting = tokio::spawn(engine.client.post(&url).body(body.to_string()).send());
    let until = async |what: &dyn Fn() -> bool| {
        must(async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    until(&|| engine.simulator.stats().waiting == 1).await;
    assert_eq!(engine.metric("num_requests_waiting").await, 1);
    drop(running);
    waiting.abort();
    until(&|| engine.simulator.stats().aborted == 2).await;
    until(&|| engine.simulator.stats().running == 0).await;
    assert_eq!(engine.metric("request_success_total").await, 2);
    let page = engine.get("/metrics").await;
    assert!(page.contains("finished_reason=\"abort\"} 2.0"));
    assert!(engine.simulator.stats().kv_cache_usage.abs() < f64::EPSILON);
    engine.stop().await;
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_in_the_apis_own_form() {
    let engine = Engine::start(SimulatorConfig { max_model_len: Some(64), ..config() }).await;
    let check = async |path: &str, body: Value, status: u16, kind: &str, message: &str| {
        let (got, text) = engine.post(path, &body).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(got, status, "{text}");
        assert_eq!(answer["error"]["type"], kind, "{text}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(message), "{text}");
        let messages = path.starts_with("/v1/messages");
        assert_eq!(answer.get("type").is_some(), messages, "{text}");
        assert_eq!(answer["error"].get("code").is_some(), !messages, "{text}");
    };
    let long = "x".repeat(4 * 60);
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let bad = "BadRequestError";
        check(path, say(&long, 1), 400, bad, "maximum context length is 64 tokens").await;
        check(path, say("hi", 60), 400, bad, "you requested 60 output tokens").await;
        check(path, say("hi", 65), 400, bad, "cannot be greater than max_model_len=64").await;
        check(path, say("hi", 0), 400, bad, "at least 1").await;
        check(path, json!({"max_tokens": 1}), 400, bad, "messages: field required").await;
        check(path, json!("text"), 400, bad, "must be a JSON object").await;
        let mut unknown = say("hi", 1);
        unknown["model"] = "other".into();
        let message = "The model `other` does not exist.";
        check(path, unknown, 404, "NotFoundError", message).await;
        let url = format!("{}{path}", engine.simulator.url());
        let broken = must(engine.client.post(&url).body("{bad").send()).await.unwrap();
        assert_eq!(broken.status(), 400);
        assert_eq!(must(engine.client.get(&url).send()).await.unwrap().status(), 405);
    }
    let (status, _) = engine.post("/v1/embeddings", &json!({})).await;
    assert_eq!(status, 404);
    let bad = "BadRequestError";
    check("/v1/responses", json!({}), 400, bad, "input: a text or a list of items").await;
    check("/v1/responses", json!({"input": []}), 400, bad, "input: it says nothing").await;
    let gone = json!({"input": "x", "previous_response_id": "resp_x"});
    check("/v1/responses", gone, 404, "invalid_request_error", "'resp_x' not found").await;
    assert_eq!(engine.metric("request_success_total").await, 0);
    engine.stop().await;
}

#[tokio::test]
async fn side_calls_tell_what_runs_and_count_as_the_engine_does() {
    let engine = Engine::start(config()).await;
    let json =
        async |path: &str| -> Value { serde_json::from_str(&engine.get(path).await).unwrap() };
    assert_eq!(engine.get("/health").await, "");
    let version = json("/version").await;
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["engine"], "agentbench-simulated");
    let model = &json("/v1/models").await["data"][0];
    assert_eq!(model["id"], "agentbench-sim");
    assert_eq!(model["owned_by"], "agentbench-simulated");
    assert_eq!(model["max_model_len"], 262_144);

    let body = json!({
        "messages": [{"role": "user", "content": "how many tokens is this?"}], "max_tokens": 1,
        "model": "agentbench-sim",
    });
    let used = engine.ask(Api::Chat, body.clone(), false).await.usage.prompt_tokens.unwrap();
    let (_, counted) = engine.post("/v1/messages/count_tokens", &body).await;
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["input_tokens"], used);
    let (_, tokens) = engine.post("/tokenize", &body).await;
    let tokens: Value = serde_json::from_str(&tokens).unwrap();
    assert_eq!(
        (tokens["count"].as_u64(), tokens["max_model_len"].as_u64()),
        (Some(used), Some(262_144))
    );
    assert_eq!(tokens["tokens"].as_array().unwrap().len() as u64, used);
    let (_, text) = engine.post("/tokenize", &json!({"prompt": "abcdefghi"})).await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["count"], 3);
    // The ids of a chat prompt, sent as a completion, hit the chat's blocks.
    let ids = &tokens["tokens"];
    let body = json!({"prompt": ids, "max_tokens": 1});
    let (_, text) = engine.post("/v1/completions", &body).await;
    let usage = &serde_json::from_str::<Value>(&text).unwrap()["usage"];
    assert_eq!(usage["prompt_tokens"], used);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], (used - 1) / 16 * 16);
    engine.stop().await;
}

fn write_script(steps: &Value) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.json");
    std::fs::write(&path, steps.to_string()).unwrap();
    (directory, path)
}

#[tokio::test]
async fn a_script_leads_an_agent_through_a_loop() {
    let (_directory, path) = write_script(&json!([
        {"tool": "Bash", "arguments": {"command": "ls -la", "description": "List files"}},
        {"text": "I will read it.", "tool": "Bash", "arguments": {"command": "cat app.py"}},
        {"text": "All done."},
    ]));
    let engine = Engine::start(SimulatorConfig { script: Some(path), ..config() }).await;
    let schema = json!({"type": "object"});
    let mut body = say("fix app.py", 500);
    body["tools"] = json!([{"name": "Bash", "description": "Runs.", "input_schema": schema}]);
    let mut cached = 0;
    let mut called = Vec::new();
    for stream in [true, false, true] {
        let reply = engine.ask(Api::Messages, body.clone(), stream).await;
        // Everything but the last computed block of the turn before is found again.
        assert!(reply.usage.cached_tokens.unwrap() >= cached);
        cached = (reply.usage.prompt_tokens.unwrap() + reply.usage.completion_tokens.unwrap() - 1)
            / 16
            * 16;
        let mut content = Vec::new();
        let mut results = Vec::new();
        for block in &reply.blocks {
            match block {
                ReplyBlock::Text { text } => content.push(json!({"type": "text", "text": text})),
                ReplyBlock::ToolCall { id, name, arguments } => {
                    called.push((name.clone(), arguments.clone()));
                    let input: Value = serde_json::from_str(arguments).unwrap();
                    content
                        .push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
                    results
                        .push(json!({"type": "tool_result", "tool_use_id": id, "content": "ok"}));
                }
                ReplyBlock::Reasoning { .. } => panic!("{block:?}"),
            }
        }
        if results.is_empty() {
            assert_eq!(words(&reply), "All done.");
            assert_eq!(reply.stop_reason.as_deref(), Some("end_turn"));
            break;
        }
        assert_eq!(reply.stop_reason.as_deref(), Some("tool_use"));
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": results}));
    }
    let arguments =
        [r#"{"command":"ls -la","description":"List files"}"#, r#"{"command":"cat app.py"}"#];
    assert_eq!(called, arguments.map(|it| ("Bash".to_owned(), it.to_owned())));
    engine.stop().await;
}

#[tokio::test]
async fn a_script_calls_tools_over_chat_and_only_those_offered() {
    let (_directory, path) =
        write_script(&json!([{"tool": "bash", "arguments": {"command": "ls"}}]));
    let engine = Engine::start(SimulatorConfig { script: Some(path), ..config() }).await;
    let mut body = say("go", 500);
    let reply = engine.ask(Api::Chat, body.clone(), true).await;
    assert_eq!(words(&reply), "The script asks for the tool bash, which is not offered.");
    body["tools"] = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
    for stream in [true, false] {
        let reply = engine.ask(Api::Chat, body.clone(), stream).await;
        let [ReplyBlock::ToolCall { id, name, arguments }] = reply.blocks.as_slice() else {
            panic!("{:?}", reply.blocks);
        };
        assert!(id.starts_with("chatcmpl-tool-"));
        assert_eq!((name.as_str(), arguments.as_str()), ("bash", r#"{"command":"ls"}"#));
        assert_eq!(reply.stop_reason.as_deref(), Some("tool_calls"));
    }
    body["tool_choice"] = "none".into();
    let reply = engine.ask(Api::Chat, body.clone(), false).await;
    assert!(words(&reply).ends_with("which is not offered."));
    // A forced length goes before the script.
    body["ignore_eos"] = true.into();
    let reply = engine.ask(Api::Chat, body, true).await;
    assert_eq!(reply.usage.completion_tokens, Some(500));
    engine.stop().await;
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let check = async |config: SimulatorConfig, message: &str| {
        let error = Simulator::start(config).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    };
    check(SimulatorConfig { kv_blocks: Some(0), ..config() }, "kv_blocks is 0").await;
    let long = SimulatorConfig { kv_blocks: Some(4), max_model_len: Some(65), ..config() };
    check(long, "max_model_len is 65, but 4 KV blocks hold 64 tokens").await;
    check(SimulatorConfig { model: String::new(), ..config() }, "needs a name").await;
    let script = Some(PathBuf::from("/no/such/script.json"));
    check(SimulatorConfig { script, ..config() }, "/no/such/script.json").await;
    let tokenizer = Some(PathBuf::from("/no/such/tokenizer.json"));
    check(SimulatorConfig { tokenizer, ..config() }, "not a usable tokenizer.json").await;
    let first = Engine::start(config()).await;
    let taken = SimulatorConfig { listen: first.simulator.local_addr(), ..config() };
    assert!(matches!(Simulator::start(taken).await, Err(Error::Bind { .. })));
    first.stop().await;
}

#[tokio::test]
async fn requests_that_outgrow_the_cache_are_preempted_and_end_whole() {
    let mut small = SimulatorConfig { kv_blocks: Some(40), ..config() };
    // Slow enough that all are there before the first is done.
    small.profile.timing.step_us = 2_000.0;
    let engine = Engine::start(small).await;
    // 8 requests of 13 blocks each.
    let asks = (0..8).map(|index| {
        let mut body = say(&format!("number {index}"), 190);
        body["ignore_eos"] = true.into();
        engine.ask(Api::Chat, body, true)
    });
    let replies = futures_util::future::join_all(asks).await;
    let sum = |count: fn(&Reply) -> Option<u64>| replies.iter().filter_map(count).sum::<u64>();
    assert_eq!(sum(|reply| reply.usage.completion_tokens), 8 * 190);
    assert!(engine.metric("num_preemptions_total").await > 0);
    assert_eq!(engine.metric("request_num_preemptions_count").await, 8);
    let prompt = sum(|reply| reply.usage.prompt_tokens);
    assert_eq!(engine.metric("prompt_tokens_total").await, prompt);
    let cached = sum(|reply| reply.usage.cached_tokens);
    assert_eq!(engine.metric("prefix_cache_hits_total").await, cached);
    assert!(engine.simulator.stats().kv_cache_usage.abs() < f64::EPSILON);
    engine.stop().await;
}

#[tokio::test]
async fn many_streams_at_once_end_whole() {
    let engine = Engine::start(config()).await;
    let asks = (0..100).map(|index| {
        let mut body = say(&format!("number {index}"), 40);
        body["ignore_eos"] = true.into();
        engine.ask(Api::Chat, body, true)
    });
    for reply in futures_util::future::join_all(asks).await {
        assert_eq!(reply.usage.completion_tokens, Some(40));
    }
    assert_eq!(engine.metric("generation_tokens_total").await, 4_000);
    engine.stop().await;
}
