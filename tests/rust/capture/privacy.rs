//! What must not be in a run: secrets, masked texts, and what other users of the machine may read.

use std::sync::Arc;
use std::time::Duration;

use agentbench::redact::{Masker, Names};
use agentbench::trace::record::UnitRow;

use super::{Rows, TASK, body_of, message_events, messages_body, play};
use crate::wire::{Setup, must};

#[tokio::test]
async fn no_secret_reaches_the_disk() {
    let setup = Setup::start().await;
    let headers = "X-Api-Key: s3cret\r\nAuthorization: Bearer s3cret\r\nCookie: c=s3cret\r\n\
                   Proxy-Authorization: Basic s3cret\r\nApi-Key: s3cret\r\n";
    let path = "/v1/messages?key=s3cret&access_token=s3cret&sig=s3cret";
    play(&setup, path, headers, &messages_body(&[TASK]), &message_events("x", None)).await;
    let mut client = setup.client().await;
    client.post(path, headers, b"{}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.reset();
    client.read_message().await;
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    assert_eq!(recorded.turns.len(), 2);
    for row in &recorded.turns {
        let text = serde_json::to_string(row).unwrap();
        assert!(text.contains("key=***") && !text.contains("s3cret"), "{text}");
    }
    for file in recorded.files() {
        let found = file.1.windows(6).any(|window| window == b"s3cret");
        assert!(!found, "{} holds a secret", file.0.display());
    }
}

/// What a redacted run must not hold, each in its place, and what the places are.
const TOKEN: &str = "ghp_A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8";

#[tokio::test]
async fn a_redacted_run_holds_masks_and_the_engine_gets_the_text() {
    let names = Names { users: vec!["alice".to_owned()], hosts: vec!["gpu-node-7".to_owned()] };
    let masker = Arc::new(Masker::new(names));
    let setup = Setup::start_with(|config| config.redact = Some(Arc::clone(&masker))).await;
    let told = format!("alice@x.com on gpu-node-7 in /home/alice/p with {TOKEN}");
    let system = r#""system":"of alice""#;
    let tools =
        r#""tools":[{"name":"Bash","description":"for alice","input_schema":{"type":"object"}}]"#;
    let metadata = r#""metadata":{"user_id":"user_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef_account__session_s1"}"#;
    let body = |messages: &str| {
        format!(
            r#"{{"model":"/home/alice/m",{metadata},{system},{tools},"stream":true,"messages":[{messages}]}}"#
        )
    };
    let user = format!(r#"{{"role":"user","content":"fix it: {told}"}}"#);
    let headers =
        "User-Agent: claude-cli/2.1.332 (external)\r\nX-Claude-Code-Session-Id: alice-1\r\n";
    let mut events = message_events(&told, Some(("toolu_1", "Bash")));
    for event in &mut events {
        *event = event.replace("\\\"ls\\\"", "\\\"mail alice@x.com\\\"");
    }
    // `play` checks that the engine gets the bytes as they are.
    play(&setup, "/v1/messages?owner=alice", headers, &body(&user), &events).await;
    let call = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"{told}"}},{{"type":"tool_use","id":"toolu_1","name":"Bash","input":{{"command":"mail alice@x.com"}}}}]}}"#
    );
    let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"sent as alice\n"}]}"#;
    let second = body(&format!("{user},{call},{result}"));
    play(&setup, "/v1/messages?owner=alice", headers, &second, &message_events("done", None)).await;
    let mut client = setup.client().await;
    client
        .post("/s/alice/v1/messages", headers, format!("no JSON of alice {TOKEN}").as_bytes())
        .await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine
        .answer("400 Bad Request", "", b"{\"error\":{\"message\":\"alice has no /home/alice/m\"}}")
        .await;
    client.read_message().await;
    setup.recorded(3).await;
    let recorded = setup.finish().await;
    for (path, bytes) in recorded.files() {
        for secret in ["alice", "gpu-node-7", TOKEN, "@x.com", "user_0123456789abcdef"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} holds {secret}", path.display());
        }
    }
    let [one, two, three] = &recorded.turns[..] else { panic!("{} turns", recorded.turns.len()) };
    // Parquet compresses, so the rows are looked at as well.
    let units: Vec<UnitRow> = recorded.rows();
    let rows = serde_json::to_string(&(&recorded.turns, &recorded.calls, &units)).unwrap();
    for secret in ["alice", "gpu-node-7", TOKEN, "@x.com", "user_0123456789abcdef"] {
        assert!(!rows.contains(secret), "{secret} in {rows}");
    }
    // The conversation is one, its prompts extend each other, and its body can be rebuilt.
    assert_eq!((one.thread_id.as_str(), one.turn, two.turn), (two.thread_id.as_str(), 0, 1));
    assert_eq!(two.n_shared_units, one.unit_hashes.len() as u32);
    assert_eq!(two.unit_hashes[..one.unit_hashes.len()], one.unit_hashes);
    let (first, second) = (body_of(&recorded, one), body_of(&recorded, two));
    assert!(second.starts_with(first.strip_suffix("]}").unwrap()), "{first} {second}");
    let told = masker.text(&told);
    assert!(told.starts_with("redacted-email-") && first.contains(&format!("fix it: {told}")));
    assert!(one.osl_text.starts_with(&told) && second.contains(&format!(r#""text":"{told}""#)));
    assert_eq!(recorded.calls[0].arguments, masker.text(r#"{"command":"mail alice@x.com"}"#));
    let name = masker.text("alice");
    assert_eq!(
        (one.session_id.as_str(), three.session_id.as_str()),
        (format!("{name}-1").as_str(), name.as_str())
    );
    assert_eq!(one.model.as_deref(), Some(format!("/home/{name}/m").as_str()));
    assert_eq!(one.path, format!("/v1/messages?owner={name}"));
    assert_eq!(three.error.as_deref().unwrap().matches(&name).count(), 2, "{:?}", three.error);
    assert!(body_of(&recorded, three).starts_with(&format!("no JSON of {name} redacted-key-")));
    // Sizes are those of what is written.
    assert_eq!(recorded.calls[0].result_bytes, Some(format!("sent as {name}\n").len() as u64));
    let counts = recorded.stats.redacted;
    assert_eq!(counts, [("email", 1), ("key", 1), ("user", 1), ("host", 1), ("account", 1)]);
}

#[tokio::test]
async fn a_run_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let setup = Setup::start().await;
    play(&setup, "/v1/messages", "", &messages_body(&[TASK]), &message_events("x", None)).await;
    setup.recorded(1).await;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let is_journal = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".journal.jsonl");
    // The writer takes rows within some milliseconds.
    must(async {
        while !setup.files().iter().any(is_journal) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    for path in &setup.files() {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let recorded = setup.finish().await;
    for (path, _) in recorded.files() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }
}
