//! Tests that what a synthetic session's rows say holds together: bodies, threads, calls, times.

use std::collections::HashMap;

use crate::api::{Api, ContentHash, ReplyBlock, parse_request, rebuild_body};
use crate::synthesize::plan::SessionPlan;
use crate::synthesize::planner::plan_session;
use crate::synthesize::profile::Profile;
use crate::synthesize::session::SessionWriter;
use crate::trace::Row;
use crate::trace::record::{ToolCallRow, TurnKind, TurnRow, UnitRow};

const START_NS: i64 = 1_767_603_600_000_000_000;

#[derive(Default)]
struct Written {
    turns: Vec<TurnRow>,
    calls: Vec<ToolCallRow>,
    units: HashMap<String, UnitRow>,
}

fn write(profile: &Profile, sessions: u32) -> (Vec<SessionPlan>, Written) {
    let mut writer = SessionWriter::new(profile, "run", 21);
    let mut written = Written::default();
    let plans: Vec<SessionPlan> =
        (0..sessions).map(|index| plan_session(profile, 21, index, None)).collect();
    for plan in &plans {
        for row in writer.rows(plan, START_NS).unwrap() {
            match row {
                Row::Turns(turn) => written.turns.push(*turn),
                Row::ToolCalls(call) => written.calls.push(*call),
                Row::Units(unit) => {
                    let again = written.units.insert(unit.hash.clone(), *unit);
                    assert_eq!(again, None, "a unit is written once");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    (plans, written)
}

fn threads(written: &Written) -> HashMap<&str, Vec<&TurnRow>> {
    let mut threads: HashMap<&str, Vec<&TurnRow>> = HashMap::new();
    for turn in &written.turns {
        threads.entry(&turn.thread_id).or_default().push(turn);
    }
    threads
}

#[test]
fn every_turn_extends_the_one_before_and_its_body_can_be_rebuilt() {
    let (_, written) = write(&Profile::sample(), 12);
    for unit in written.units.values() {
        assert_eq!(unit.hash, ContentHash::of(unit.text.as_bytes()).hex());
        assert_eq!(unit.n_bytes, unit.text.len() as u64);
    }
    for turns in threads(&written).values() {
        for (index, turn) in turns.iter().enumerate() {
            assert_eq!(turn.turn as usize, index);
            let texts: Vec<&str> =
                turn.unit_hashes.iter().map(|hash| written.units[hash].text.as_str()).collect();
            let body = rebuild_body(&turn.body_template, &texts).unwrap();
            let api = Api::from_name(&turn.api).unwrap();
            let parsed = parse_request(api, &body).unwrap();
            let hashes: Vec<String> = parsed.units.iter().map(|unit| unit.hash.hex()).collect();
            assert_eq!(hashes, turn.unit_hashes);
            let shared = turn.n_shared_units as usize;
            assert_eq!(turn.isl_new_text, texts[shared..].join("\n"));
            let tokens = |texts: &[&str]| -> u64 {
                texts.iter().map(|text| (text.len() as u64).div_ceil(4)).sum()
            };
            assert_eq!(turn.isl, Some(tokens(&texts)));
            assert_eq!(turn.isl_new.unwrap() + turn.isl_cached.unwrap(), turn.isl.unwrap());
            if index == 0 {
                assert_eq!((shared, turn.tool_exec_ms), (0, None));
                continue;
            }
            let before = turns[index - 1];
            assert_eq!(turn.unit_hashes[..shared], before.unit_hashes, "all is shared");
            assert!(shared < turn.unit_hashes.len());
            // The sample's waits are far below the time for which the cache is kept.
            assert_eq!(turn.isl_cached, Some(tokens(&texts[..shared]) / 16 * 16));
        }
    }
}

#[test]
fn times_follow_each_other_and_add_up() {
    let (_, written) = write(&Profile::sample(), 12);
    let near = |a: f64, b: f64| (a - b).abs() < 2e-3;
    for turns in threads(&written).values() {
        for (index, turn) in turns.iter().enumerate() {
            let (first, last) = (turn.first_output_time.unwrap(), turn.last_output_time.unwrap());
            let end = turn.response_end_time.unwrap();
            assert!(turn.request_time < turn.first_byte_time.unwrap());
            assert!(turn.first_byte_time.unwrap() < first && first <= last && last <= end);
            assert!(near(turn.ttft_ms.unwrap(), (first - turn.request_time) * 1e3));
            assert!(near(turn.e2e_ms.unwrap(), (end - turn.request_time) * 1e3));
            assert!(turn.output_offsets_us.is_sorted());
            assert_eq!(turn.output_offsets_us.len() as u64, turn.osl.unwrap().div_ceil(4));
            assert!(near(turn.output_offsets_us[0] as f64 / 1e3, turn.ttft_ms.unwrap()));
            if turn.osl.unwrap() > 1 {
                let itl_ms = (last - first) * 1e3 / (turn.osl.unwrap() - 1) as f64;
                assert!(near(turn.itl_ms_mean.unwrap(), itl_ms));
            }
            if index > 0 {
                let wait = turn.request_time - turns[index - 1].response_end_time.unwrap();
                assert!(near(turn.tool_exec_ms.unwrap(), wait * 1e3));
            }
        }
    }
}

#[test]
fn every_call_is_answered_by_the_next_request_of_its_thread() {
    let (plans, written) = write(&Profile::sample(), 12);
    let planned: usize = plans
        .iter()
        .flat_map(|plan| &plan.threads)
        .flat_map(|thread| &thread.turns)
        .map(|turn| turn.calls.len())
        .sum();
    assert_eq!(written.calls.len(), planned);
    let threads = threads(&written);
    for call in &written.calls {
        let thread = &threads[call.thread_id.as_str()];
        let (turn, next) = (thread[call.turn as usize], thread[call.turn as usize + 1]);
        assert_eq!(turn.request_id, call.request_id);
        assert_eq!(Some(call.emitted_time), turn.response_end_time);
        assert_eq!(call.result_time, Some(next.request_time));
        assert_eq!(call.wire_ms, next.tool_exec_ms);
        assert!(call.own_ms.unwrap() <= call.wire_ms.unwrap());
        assert!(next.isl_new_text.contains(&call.call_id), "the id comes back");
        assert!(turn.reply_blocks.contains(&call.call_id));
        assert!(call.result_bytes.unwrap() > 0);
        assert_eq!(call.argument_bytes, call.arguments.len() as u64);
        assert!(serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok());
    }
}

#[test]
fn subagents_have_a_parent_their_task_and_their_report() {
    let (_, written) = write(&Profile { delegating_share: 0.5, ..Profile::sample() }, 6);
    let threads = threads(&written);
    let tasks: Vec<&ToolCallRow> =
        written.calls.iter().filter(|call| call.name == "Task").collect();
    assert!(tasks.len() > 5);
    let children: Vec<&Vec<&TurnRow>> =
        threads.values().filter(|turns| turns[0].kind == TurnKind::Subagent).collect();
    assert_eq!(children.len(), tasks.len());
    for child in children {
        let parent = &threads[child[0].parent_thread_id.as_deref().unwrap()];
        assert_eq!(parent[0].kind, TurnKind::Main);
        assert_eq!(child[0].n_tools + 1, parent[0].n_tools);
        let end = child.last().unwrap().response_end_time.unwrap();
        let resumed = parent.iter().find(|turn| turn.request_time > end).unwrap();
        assert!(resumed.residual_wait_ms.unwrap() < resumed.tool_exec_ms.unwrap());
        let report: Vec<ReplyBlock> =
            serde_json::from_str(&child.last().unwrap().reply_blocks).unwrap();
        let ReplyBlock::Text { text } = &report[0] else { panic!("{report:?}") };
        let text = serde_json::to_string(text).unwrap();
        assert!(resumed.isl_new_text.contains(&text), "the report comes back");
    }
}

#[test]
fn texts_have_the_planned_sizes() {
    for profile in [Profile::sample(), Profile::small()] {
        let (plans, written) = write(&profile, 10);
        let turns = plans.iter().flat_map(|plan| &plan.threads).flat_map(|thread| &thread.turns);
        let (mut prompt, mut output) = (0, 0);
        for turn in turns {
            prompt += u64::from(turn.prompt_tokens());
            output += u64::from(turn.output_tokens);
        }
        let isl: u64 = written.turns.iter().filter_map(|turn| turn.isl).sum();
        let osl: u64 = written.turns.iter().filter_map(|turn| turn.osl).sum();
        let off = |is: u64, planned: u64| (is as f64 / planned as f64 - 1.0).abs();
        assert!(off(isl, prompt) < 0.05, "{} prompt {isl} planned {prompt}", profile.name);
        assert!(off(osl, output) < 0.10, "{} output {osl} planned {output}", profile.name);
    }
}
