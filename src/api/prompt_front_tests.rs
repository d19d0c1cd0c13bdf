use super::*;

const FRONT: PromptFront<'_> = PromptFront { head: "[h]\n", first_message: "[m]\n" };

/// `H` and `M` in the expected body stand for the two texts.
#[track_caller]
fn check(body: &str, expected: &str) {
    let seen = String::from_utf8(FRONT.insert(body.as_bytes()).unwrap()).unwrap();
    assert_eq!(seen, expected.replace('H', r"[h]\n").replace('M', r"[m]\n"), "{body}");
}

#[test]
fn messages_bodies() {
    // Strings, and white space that stays.
    check(
        r#"{ "system" : "be brief", "messages":[ {"role":"user","content":"go"} ],"max_tokens":5 }"#,
        r#"{ "system" : "Hbe brief", "messages":[ {"role":"user","content":"Mgo"} ],"max_tokens":5 }"#,
    );
    // Lists of blocks with their cache marks; the messages may come before the system text.
    check(
        r#"{"messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"text":"<system-reminder>","type":"text"},{"type":"text","text":"go"}]},{"role":"user","content":"x"}],"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}},{"type":"text","text":"more"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"text":"M<system-reminder>","type":"text"},{"type":"text","text":"go"}]},{"role":"user","content":"x"}],"system":[{"type":"text","text":"Hbe brief","cache_control":{"type":"ephemeral"}},{"type":"text","text":"more"}]}"#,
    );
    // The billing line is passed over; a system text of nothing else has no place.
    check(
        r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: cc"},{"type":"text","text":"be"}],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: cc"},{"type":"text","text":"Hbe"}],"messages":[{"role":"user","content":"Mgo"}]}"#,
    );
    check(
        r#"{"system":"x-anthropic-billing-header: cc","messages":[{"role":"user","content":"go"}]}"#,
        r#"{"system":"x-anthropic-billing-header: cc","messages":[{"role":"user","content":"Mgo"}]}"#,
    );
    // No system text: the tools alone have the head; a tool of the server's is none.
    check(
        r#"{"tools":[{"type":"web_search_1","name":"w"},{"name":"Bash","description":"runs","input_schema":{}}],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"tools":[{"type":"web_search_1","name":"w"},{"name":"Bash","description":"Hruns","input_schema":{}}],"messages":[{"role":"user","content":"Mgo"}]}"#,
    );
    check(
        r#"{"tools":[{"name":"Bash","input_schema":{}}],"messages":[{"role":"user","content":"go"}]}"#,
        r#"{"tools":[{"description":"H","name":"Bash","input_schema":{}}],"messages":[{"role":"user","content":"Mgo"}]}"#,
    );
    // Messages of system role in front, and content without text.
    check(
        r#"{"system":"be","messages":[{"role":"system","content":"more"},{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}"#,
        r#"{"system":"Hbe","messages":[{"role":"system","content":"more"},{"role":"user","content":[{"type":"text","text":"M"},{"type":"tool_result","content":"x"}]}]}"#,
    );
    check(
        r#"{"messages":[{"role":"user","content":[]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"M"}]}]}"#,
    );
}

#[test]
fn chat_bodies() {
    check(
        r#"{"messages":[{"role":"system","content":"be"},{"role":"system","content":"more"},{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"Bash","description":"runs","parameters":{}}},{"type":"function","function":{"name":"b","description":"x"}}]}"#,
        r#"{"messages":[{"role":"system","content":"Hbe"},{"role":"system","content":"more"},{"role":"user","content":"Mgo"}],"tools":[{"type":"function","function":{"name":"Bash","description":"Hruns","parameters":{}}},{"type":"function","function":{"name":"b","description":"x"}}]}"#,
    );
    check(
        r#"{"messages":[{"content":[{"type":"text","text":"be"}],"role":"developer"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"text"}},{"type":"text","text":"go"}]}]}"#,
        r#"{"messages":[{"content":[{"type":"text","text":"Hbe"}],"role":"developer"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"text"}},{"type":"text","text":"Mgo"}]}]}"#,
    );
    // A first message without text is passed over, whoever speaks; later system messages are none of
    // the head.
    check(
        r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"x"},{"role":"system","content":"late"}]}"#,
        r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"Mx"},{"role":"system","content":"late"}]}"#,
    );
}

#[test]
fn responses_bodies() {
    check(
        r#"{"instructions":"be","tools":[{"type":"custom","name":"p"},{"type":"function","name":"sh","parameters":{},"description":"runs"}],"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"may"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},{"type":"function_call_output","output":"x"}]}"#,
        r#"{"instructions":"Hbe","tools":[{"type":"custom","name":"p"},{"type":"function","name":"sh","parameters":{},"description":"Hruns"}],"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"may"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"Mgo"}]},{"type":"function_call_output","output":"x"}]}"#,
    );
    check(
        r#"{"input":[{"role":"developer","content":"may"},{"role":"user","content":[{"type":"input_image"}]}]}"#,
        r#"{"input":[{"role":"developer","content":"Hmay"},{"role":"user","content":[{"type":"input_text","text":"M"},{"type":"input_image"}]}]}"#,
    );
}

#[test]
fn a_prompt_that_is_one_text() {
    check(r#"{"prompt":"def f():"}"#, r#"{"prompt":"Mdef f():"}"#);
    // Ids are picked by the digits of the salt, which is longer in earnest.
    let front = PromptFront { head: "[0123]\n", first_message: "[013f]\n" };
    let ids = |body: &str| String::from_utf8(front.insert(body.as_bytes()).unwrap()).unwrap();
    assert_eq!(ids(r#"{"prompt":[7, 8,7,9,6],"n":1}"#), r#"{"prompt":[7,8,6,6,7, 8,7,9,6],"n":1}"#);
    let many: Vec<String> = (50..90).map(|id| id.to_string()).collect();
    assert_eq!(
        ids(&format!("{{\"prompt\":[{}]}}", many.join(","))),
        format!("{{\"prompt\":[50,51,53,65,{}]}}", many.join(","))
    );
    check(r#"{"instructions":"be","input":"go"}"#, r#"{"instructions":"Hbe","input":"Mgo"}"#);
}

#[test]
fn a_body_without_a_place_is_refused() {
    let refused = |body: &str| FRONT.insert(body.as_bytes()).unwrap_err();
    assert_eq!(refused("[]"), "body is not a JSON object");
    assert_eq!(refused("{}"), "body has no prompt");
    for body in
        [r#"{"messages":[]}"#, r#"{"messages":[{"role":"user"}]}"#, r#"{"prompt":["a","b"]}"#]
    {
        assert_eq!(refused(body), "the prompt has no text to put a cache salt before");
    }
    assert!(FRONT.insert(b"{\"a\":\"\xff\"}").unwrap_err().starts_with("body is not UTF-8"));
}
