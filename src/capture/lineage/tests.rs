//! Requests in the order in which they end, and the thread and turn that each must be given.

use super::*;
use crate::api::{Api, Block, UnitKind, parse_request};

/// One request, written short. Units are words: `s:` a system block, `t:` a tool, `u:`, `a:`, `r:`
/// messages of user, assistant and tool results, `x:` a bare line, `e:` a user message that is only a
/// reminder; `+` joins blocks of one message and `~` before a block marks it as a reminder.
struct Request<'a> {
    session: Option<&'a str>,
    agent_id: Option<&'a str>,
    parent_agent: Option<&'a str>,
    subagent: bool,
    utility: bool,
    prompt: &'a str,
    arrived_ms: i64,
    ended_ms: i64,
    end: AttemptEnd,
    answers: Vec<&'a str>,
    calls: Vec<&'a str>,
    spawns: Vec<&'a str>,
    reply: &'a str,
}

fn request(prompt: &str, arrived_ms: i64, ended_ms: i64) -> Request<'_> {
    Request {
        session: None,
        agent_id: None,
        parent_agent: None,
        subagent: false,
        utility: false,
        prompt,
        arrived_ms,
        ended_ms,
        end: AttemptEnd::Answered,
        answers: Vec::new(),
        calls: Vec::new(),
        spawns: Vec::new(),
        reply: "",
    }
}

fn units(prompt: &str) -> Vec<Unit<'static>> {
    let unit = |word: &str| {
        let (kind, text) = word.split_once(':').unwrap();
        let (kind, role) = match kind {
            "s" | "x" => (UnitKind::System, ""),
            "t" => (UnitKind::Tool, ""),
            "a" => (UnitKind::Message, "assistant"),
            _ => (UnitKind::Message, "user"),
        };
        let block = |text: &str| Block {
            hash: ContentHash::of(format!("{role}{}", text.trim_start_matches('~')).as_bytes()),
            ephemeral: text.starts_with('~') || word.starts_with("e:"),
        };
        let bare = word.starts_with("x:");
        let blocks = if bare { Vec::new() } else { text.split('+').map(block).collect() };
        let text = serde_json::json!({"role": role, "content": text}).to_string();
        let hash = ContentHash::of(text.as_bytes());
        Unit { kind, role: role.to_owned().into(), text: text.into(), hash, blocks: blocks.into() }
    };
    prompt.split_whitespace().map(unit).collect()
}

impl Lineage {
    fn take(&mut self, request: Request<'_>) -> Place {
        self.place(&Seen {
            session: request.session,
            agent_id: request.agent_id,
            parent_agent: request.parent_agent,
            subagent: request.subagent,
            utility: request.utility,
            units: &units(request.prompt),
            body: ContentHash::of(request.prompt.as_bytes()),
            arrived_ns: request.arrived_ms * 1_000_000,
            ended_ns: request.ended_ms * 1_000_000,
            end: request.end,
            answered_calls: request.answers,
            calls: request.calls,
            spawned_prompts: request.spawns.into_iter().map(str::to_owned).collect(),
            reply_text: request.reply,
        })
    }
}

/// Places requests one after another; each must come to `thread#turn` with so many shared units.
fn check(case: &str, requests: Vec<(Request<'_>, &str, u32)>) -> Vec<Place> {
    let mut lineage = Lineage::new(100);
    let mut places = Vec::new();
    for (index, (request, at, shared)) in requests.into_iter().enumerate() {
        let place = lineage.take(request);
        let found = format!("{}#{}", place.thread_id, place.turn);
        assert_eq!((found.as_str(), place.n_shared_units), (at, shared), "{case}, request {index}");
        places.push(place);
    }
    places
}

#[test]
fn a_growing_prompt_is_one_thread() {
    let places = check(
        "growing",
        vec![
            (request("s:sys t:bash u:task", 0, 10), "auto-1/1#0", 0),
            (request("s:sys t:bash u:task a:1 r:1", 25, 40), "auto-1/1#1", 3),
            (request("s:sys t:bash u:task a:1 r:1 a:2 r:2", 41, 50), "auto-1/1#2", 5),
        ],
    );
    assert_eq!(
        places.iter().map(|p| p.tool_exec_ms).collect::<Vec<_>>(),
        [None, Some(15.0), Some(1.0)]
    );
    assert_eq!(places[0].new_units, [0, 1, 2]);
    assert_eq!(places[2].new_units, [5, 6]);
    assert_eq!(places[0].kind, TurnKind::Main);
}

/// Raw prompts (JSON values) one after another, and the thread and turn of each.
fn check_raw(prompts: &[(&str, &str)]) {
    let mut lineage = Lineage::new(100);
    for (index, (prompt, at)) in prompts.iter().enumerate() {
        let place = take_raw(&mut lineage, &format!(r#"{{"prompt":{prompt}}}"#), index as i64);
        assert_eq!(format!("{}#{}", place.thread_id, place.turn), *at, "prompt {index}");
    }
}

/// A request of Completions, the one after the one before it.
fn take_raw(lineage: &mut Lineage, body: &str, index: i64) -> Place {
    let parsed = parse_request(Api::Completions, body.as_bytes()).unwrap();
    lineage.place(&Seen {
        session: None,
        agent_id: None,
        parent_agent: None,
        subagent: false,
        utility: false,
        units: &parsed.units,
        body: ContentHash::of(body.as_bytes()),
        arrived_ns: index * 10,
        ended_ns: index * 10 + 5,
        end: AttemptEnd::Answered,
        answered_calls: Vec::new(),
        calls: Vec::new(),
        spawned_prompts: Vec::new(),
        reply_text: "",
    })
}

#[test]
fn raw_prompts_that_begin_alike_are_found_without_looking_at_all_of_them() {
    let body = |task: usize, turns: usize| {
        let beginning = "You fix code. ".repeat(200);
        let text = format!("{beginning}Task {task}. {}", "Then this and that. ".repeat(turns * 60));
        format!(r#"{{"prompt":"{text}"}}"#)
    };
    let mut lineage = Lineage::new(1000);
    for turn in 0..4 {
        for task in 0..200 {
            let body = body(task, turn);
            let index = (turn * 200 + task) as i64;
            let place = take_raw(&mut lineage, &body, index);
            let thread = task + 1;
            let at = (format!("auto-{thread}/{thread}"), turn as u32);
            assert_eq!((place.thread_id, place.turn), at);
        }
    }
    let body = body(7, 4);
    let parsed = parse_request(Api::Completions, body.as_bytes()).unwrap();
    let candidates = lineage.by_root.candidates(None, &Prompt::of(&parsed.units));
    assert_eq!(candidates, [8]);
    assert_eq!(lineage.by_root.len(), 200, "where a thread was found before, it is not any more");
}

#[test]
fn a_raw_prompt_continues_the_one_it_begins_with() {
    check_raw(&[
        (r#""You fix code. Task 1""#, "auto-1/1#0"),
        (r#""You fix code. Task 2""#, "auto-2/2#0"),
        (r#""You fix code. Task 1. Yes. Then""#, "auto-1/1#1"),
        (r#""You fix code. Task 2. No.""#, "auto-2/2#1"),
        // A first prompt that was answered already, and one that went back.
        (r#""You fix code. Task 1""#, "auto-3/3#0"),
        (r#""""#, "auto-4/4#0"),
        (r#""x""#, "auto-5/5#0"),
    ]);
    check_raw(&[
        ("[1,2,3]", "auto-1/1#0"),
        ("[1,2,34]", "auto-2/2#0"),
        ("[1,2,3,4]", "auto-1/1#1"),
        ("[]", "auto-3/3#0"),
        ("[9]", "auto-4/4#0"),
    ]);
    let (one, two) = ("a long text ".repeat(200), "a long text ".repeat(200) + "and more");
    check_raw(&[
        (&format!("\"{one}\""), "auto-1/1#0"),
        (&format!("\"b{one}\""), "auto-2/2#0"),
        (&format!("\"{two}\""), "auto-1/1#1"),
        (&format!("\"b{two}\""), "auto-2/2#1"),
    ]);
}

#[test]
fn what_does_not_break_a_run() {
    check(
        "billing line, moved reminder, appended block",
        vec![
            (request("x:bill1 s:sys t:b u:~note+task", 0, 1), "auto-1/1#0", 0),
            (request("x:bill2 s:sys t:b u:task a:1 r:1+~note", 2, 3), "auto-1/1#1", 4),
            (request("x:bill3 s:sys t:b u:task a:1 r:1+more", 4, 5), "auto-1/1#2", 5),
        ],
    );
    check(
        "another tool: the thread goes on, the shared prefix ends before it",
        vec![
            (request("s:sys t:a u:task", 0, 1), "auto-1/1#0", 0),
            (request("s:sys t:a t:b u:task a:1 r:1", 2, 3), "auto-1/1#1", 2),
        ],
    );
    check(
        "a reminder at the end is no news when it was there before",
        vec![
            (request("s:sys u:task e:note", 0, 1), "auto-1/1#0", 0),
            (request("s:sys u:task e:note", 2, 3), "auto-2/2#0", 0),
            (request("s:sys u:task e:note a:1", 4, 5), "auto-2/2#1", 3),
        ],
    );
}

#[test]
fn what_opens_a_thread() {
    check(
        "another first user unit or another system",
        vec![
            (request("s:sys u:task", 0, 1), "auto-1/1#0", 0),
            (request("s:sys u:other", 2, 3), "auto-2/2#0", 0),
            (request("s:new u:task", 4, 5), "auto-3/3#0", 0),
            (request("s:sys u:task a:1 r:1", 6, 7), "auto-1/1#1", 2),
        ],
    );
    check(
        "a compacted conversation in a named session",
        vec![
            (Request { session: Some("S"), ..request("s:sys u:task", 0, 1) }, "S/1#0", 0),
            (Request { session: Some("S"), ..request("s:sys u:summary", 2, 3) }, "S/2#0", 0),
        ],
    );
    check(
        "the same prompt in two named sessions",
        vec![
            (Request { session: Some("S"), ..request("s:sys u:task", 0, 1) }, "S/1#0", 0),
            (Request { session: Some("T"), ..request("s:sys u:task a:1", 2, 3) }, "T/2#0", 0),
        ],
    );
    check(
        "a rewound conversation goes on",
        vec![
            (request("s:sys u:task", 0, 1), "auto-1/1#0", 0),
            (request("s:sys u:task a:1 r:1", 2, 3), "auto-1/1#1", 2),
            (request("s:sys u:task a:1 r:other", 4, 5), "auto-1/1#2", 3),
        ],
    );
}

#[test]
fn two_agents_at_one_task_are_two_threads() {
    check(
        "both in flight at once, told apart by their calls",
        vec![
            (Request { calls: vec!["c1"], ..request("s:sys u:task", 0, 10) }, "auto-1/1#0", 0),
            (Request { calls: vec!["c2"], ..request("s:sys u:task", 1, 11) }, "auto-2/2#0", 0),
            (
                Request {
                    answers: vec!["c1"],
                    calls: vec!["c3"],
                    ..request("s:sys u:task a:1 r:1", 12, 20)
                },
                "auto-1/1#1",
                2,
            ),
            (
                Request { answers: vec!["c2"], ..request("s:sys u:task a:1 r:1", 13, 21) },
                "auto-2/2#1",
                2,
            ),
            (
                Request { answers: vec!["c3"], ..request("s:sys u:task a:1 r:1 a:2 r:2", 30, 31) },
                "auto-1/1#2",
                4,
            ),
        ],
    );
    check(
        "told apart by what they were answered",
        vec![
            (Request { reply: "one", ..request("s:sys u:task", 0, 10) }, "auto-1/1#0", 0),
            (Request { reply: " two\n", ..request("s:sys u:task", 1, 11) }, "auto-2/2#0", 0),
            (request("s:sys u:task a:one r:1", 12, 20), "auto-1/1#1", 2),
            (request("s:sys u:task a:two r:1", 13, 21), "auto-2/2#1", 2),
        ],
    );
    check(
        "the second begins when the first has long grown",
        vec![
            (request("s:sys u:task", 0, 1), "auto-1/1#0", 0),
            (request("s:sys u:task a:1 r:1", 2, 3), "auto-1/1#1", 2),
            (request("s:sys u:task", 4, 5), "auto-2/2#0", 0),
            (request("s:sys u:task a:1 r:1", 6, 7), "auto-2/2#1", 2),
            (request("s:sys u:task a:1 r:1 a:2 r:2", 8, 9), "auto-2/2#2", 4),
        ],
    );
    check(
        "a thread whose response goes on is not continued",
        vec![
            (request("s:sys u:task", 0, 10), "auto-1/1#0", 0),
            (request("s:sys u:task a:1 r:1", 5, 11), "auto-2/2#0", 0),
        ],
    );
}

#[test]
fn the_same_body_after_a_failure_is_the_same_turn() {
    let failed = |prompt, arrived_ms, ended_ms| Request {
        end: AttemptEnd::Failed,
        ..request(prompt, arrived_ms, ended_ms)
    };
    let places = check(
        "retries",
        vec![
            (failed("s:sys u:task", 0, 1), "auto-1/1#0", 0),
            (request("s:sys u:task", 5, 6), "auto-1/1#0", 0),
            (failed("s:sys u:task a:1 r:1", 9, 10), "auto-1/1#1", 2),
            (failed("s:sys u:task a:1 r:1", 20, 21), "auto-1/1#1", 2),
            (request("s:sys u:task a:1 r:1", 30, 31), "auto-1/1#1", 2),
            (request("s:sys u:task a:1 r:1 a:2", 33, 34), "auto-1/1#2", 4),
        ],
    );
    let waits: Vec<_> = places.iter().map(|place| place.tool_exec_ms).collect();
    assert_eq!(waits, [None, None, Some(3.0), Some(3.0), Some(3.0), Some(2.0)]);
    assert_eq!(places[4].new_units, Vec::<usize>::new());
    let gone = Request { end: AttemptEnd::ClientGone, ..request("s:sys u:task", 0, 10) };
    check(
        "a client that hung up and came back before the end was noticed",
        vec![(gone, "auto-1/1#0", 0), (request("s:sys u:task", 9, 20), "auto-1/1#0", 0)],
    );
    check(
        "another body after a failure is another turn; one that overlaps is no retry",
        vec![
            (failed("s:sys u:task", 0, 5), "auto-1/1#0", 0),
            (request("s:sys u:task", 4, 6), "auto-2/2#0", 0),
            (request("s:sys u:task+more", 8, 9), "auto-2/2#1", 1),
        ],
    );
}

#[test]
fn subagents_have_threads_of_their_own_and_a_parent() {
    let main = |prompt, arrived_ms, ended_ms| Request {
        session: Some("S"),
        ..request(prompt, arrived_ms, ended_ms)
    };
    let named = |prompt, arrived_ms, ended_ms| Request {
        agent_id: Some("a1"),
        ..main(prompt, arrived_ms, ended_ms)
    };
    let places = check(
        "named by a header; the parent's residual wait is kept",
        vec![
            (main("s:sys u:task", 0, 10), "S/1#0", 0),
            (named("s:sub u:look", 12, 20), "S/agent-a1#0", 0),
            (named("s:sub u:compacted", 22, 30), "S/agent-a1#1", 1),
            (main("s:sys u:task a:1 r:1", 34, 40), "S/1#1", 2),
            (main("s:sys u:task a:1 r:1 a:2 r:2", 41, 42), "S/1#2", 4),
        ],
    );
    assert_eq!(places[1].parent_thread_id.as_deref(), Some("S/1"));
    assert_eq!(places[1].kind, TurnKind::Subagent);
    let waits: Vec<_> = places.iter().map(|p| (p.tool_exec_ms, p.residual_wait_ms)).collect();
    assert_eq!(waits[3], (Some(24.0), Some(4.0)));
    assert_eq!(waits[4], (Some(1.0), None));
    assert_eq!(waits[1], (None, None));

    let hinted = Request { subagent: true, ..main("s:sub u:look", 12, 20) };
    let places = check(
        "told by its billing line",
        vec![(main("s:sys u:task", 0, 10), "S/1#0", 0), (hinted, "S/2#0", 0)],
    );
    assert_eq!(places[1].parent_thread_id.as_deref(), Some("S/1"));

    let spawning = Request { spawns: vec!["look-into-it"], ..request("s:sys u:task", 0, 10) };
    let places = check(
        "found by the prompt that the parent gave",
        vec![
            (request("s:other u:job", 0, 1), "auto-1/1#0", 0),
            (spawning, "auto-2/2#0", 0),
            (request("s:sub u:please-look-into-it", 12, 20), "auto-2/3#0", 0),
            (request("s:sub u:please-look-into-it a:1 r:1", 21, 22), "auto-2/3#1", 2),
        ],
    );
    assert_eq!(places[2].parent_thread_id.as_deref(), Some("auto-2/2"));
    assert_eq!(places[2].kind, TurnKind::Subagent);
}

#[test]
fn a_subagent_of_a_subagent_has_the_parent_that_it_names() {
    let named = |agent_id, parent_agent, prompt, arrived_ms| Request {
        session: Some("S"),
        agent_id,
        parent_agent,
        ..request(prompt, arrived_ms, arrived_ms + 5)
    };
    let title = Request { utility: true, ..named(Some("a1"), None, "s:names u:title", 30) };
    let places = check(
        "two levels, a root that is no agent, and a side call of the first",
        vec![
            (named(None, None, "s:sys u:task", 0), "S/1#0", 0),
            (named(Some("a1"), Some("S"), "s:sub u:look", 10), "S/agent-a1#0", 0),
            (named(Some("a2"), Some("a1"), "s:sub u:deeper", 20), "S/agent-a2#0", 0),
            (title, "S/4#0", 0),
            (named(Some("a1"), Some("S"), "s:sub u:look a:1 r:1", 40), "S/agent-a1#1", 2),
        ],
    );
    let parents: Vec<_> = places.iter().map(|place| place.parent_thread_id.as_deref()).collect();
    let first = Some("S/agent-a1");
    assert_eq!(parents, [None, Some("S/1"), first, first, Some("S/1")]);
    assert_eq!(places[3].kind, TurnKind::Utility);

    let mut lineage = Lineage::new(8);
    lineage.take(named(Some("a1"), Some("S"), "s:sub u:look", 10));
    assert_eq!(lineage.session_of_agent("a1").as_deref(), Some("S"));
    assert_eq!(lineage.session_of_agent("S"), None);
}

#[test]
fn utility_calls_do_not_stand_between_the_turns() {
    let main = |prompt, arrived_ms, ended_ms| Request {
        session: Some("S"),
        ..request(prompt, arrived_ms, ended_ms)
    };
    let utility = Request { utility: true, ..main("s:sys u:task a:1 u:title", 12, 13) };
    let places = check(
        "a utility call on the main prompt",
        vec![
            (main("s:sys u:task", 0, 10), "S/1#0", 0),
            (utility, "S/2#0", 0),
            (main("s:sys u:task a:1 r:1", 20, 30), "S/1#1", 2),
        ],
    );
    assert_eq!(places[1].kind, TurnKind::Utility);
    assert_eq!(places[1].parent_thread_id.as_deref(), Some("S/1"));
    assert_eq!(places[2].tool_exec_ms, Some(10.0));
    assert_eq!(places[2].residual_wait_ms, None, "nobody waits for a title");
}

#[test]
fn prompts_that_are_not_known_stay_in_their_session() {
    check(
        "bodies that were not read",
        vec![
            (Request { session: Some("S"), ..request("", 0, 1) }, "S/1#0", 0),
            (Request { session: Some("S"), ..request(" ", 2, 3) }, "S/1#1", 0),
            (request("", 4, 5), "auto-1/2#0", 0),
            (request(" ", 6, 7), "auto-2/3#0", 0),
        ],
    );
}

#[test]
fn the_threads_used_longest_ago_are_forgotten() {
    let mut lineage = Lineage::new(32);
    let prompts: Vec<String> = (0..33).map(|index| format!("s:sys u:task{index}")).collect();
    let mut forgotten = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let at = index as i64 * 10;
        forgotten.extend(lineage.take(request(prompt, at, at + 1)).forgotten);
        if index == 20 {
            let grown = format!("{} a:1", prompts[0]);
            assert_eq!(lineage.take(request(&grown, at + 2, at + 3)).turn, 1);
        }
    }
    assert_eq!(forgotten, ["auto-2/2", "auto-3/3", "auto-4/4"]);
    assert_eq!(lineage.threads.len(), 30);
    assert_eq!(lineage.by_root.len(), 30);
    assert_eq!(lineage.sessions.len(), 30);
    assert_eq!((lineage.sessions_opened(), lineage.threads_opened()), (33, 33));
    let again = lineage.take(request("s:sys u:task1 a:1", 1000, 1001));
    assert_eq!((again.thread_id.as_str(), again.turn), ("auto-34/34", 0));
}

#[test]
fn the_same_first_prompt_many_times_does_not_look_at_all_the_threads_before() {
    let mut lineage = Lineage::new(10_000);
    for index in 0..1000 {
        let failed = Request {
            end: AttemptEnd::Failed,
            ..request("s:sys u:task", index * 10, index * 10 + 1)
        };
        let thread = lineage.take(failed).thread_id;
        let again = lineage.take(request("s:sys u:task", index * 10 + 2, index * 10 + 3));
        assert_eq!((again.thread_id, again.turn), (thread, 0), "a retry, {index}");
    }
    assert_eq!(lineage.threads_opened(), 1000);
    let candidates =
        |prompt: &str| lineage.by_root.candidates(None, &Prompt::of(&units(prompt))).len();
    assert_eq!(candidates("s:sys u:task"), 0);
    assert_eq!(candidates("s:sys u:task a:1 r:1"), 1000);
}
