//! Draws session plans from a profile. Pure: the same seed and index give the same plan.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::synthesize::plan::{
    CallPlan, Cause, Form, SessionPlan, ThreadPlan, ThreadRole, TurnPlan,
};
use crate::synthesize::profile::{Profile, ToolUse};
use crate::synthesize::spread::one_or_more;

/// JSON around a message, in tokens of 4 bytes.
const MESSAGE_TOKENS: u32 = 13;
/// JSON around one tool result.
const RESULT_TOKENS: u32 = 26;
/// JSON around one tool call.
const CALL_TOKENS: u32 = 19;
/// The request for a summary.
pub(super) const COMPACTION_TOKENS: u32 = 90;
/// From a reply that starts a subagent to its first request.
const SPAWN_US: i64 = 40_000;

/// A generator for one purpose of one session: plans and texts do not disturb each other, and a
/// session is the same in a run of any size.
pub(crate) fn generator(seed: u64, session: u32, purpose: u64) -> StdRng {
    // The finaliser of SplitMix64: neighbours become strangers.
    let mut mixed = seed ^ (u64::from(session) << 8 | purpose).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    StdRng::seed_from_u64(mixed ^ (mixed >> 31))
}

/// Plans one session. `max_turns` cuts its main conversation.
pub fn plan_session(
    profile: &Profile,
    seed: u64,
    index: u32,
    max_turns: Option<u32>,
) -> SessionPlan {
    let mut rng = generator(seed, index, 0);
    let form = if rng.random_bool(profile.chat_share) { Form::Chat } else { Form::Messages };
    let mut planner = Planner {
        profile,
        rng,
        threads: Vec::new(),
        turns_left: max_turns.unwrap_or(u32::MAX).max(1),
    };
    let user_requests = planner.main();
    SessionPlan { index, form, user_requests, threads: planner.threads }
}

struct Planner<'a> {
    profile: &'a Profile,
    rng: StdRng,
    threads: Vec<ThreadPlan>,
    turns_left: u32,
}

/// The state of a conversation between two of its requests.
struct Conversation {
    thread: usize,
    /// Prompt tokens of the last request; system and tools before the first.
    prompt_tokens: u32,
    /// Output tokens of the last reply, with its JSON.
    reply_tokens: u32,
    /// Tokens of the results that the next request brings.
    result_tokens: u32,
    /// When the next request is sent, unless a user has to think first.
    next_us: i64,
    /// End of the last response.
    ended_us: Option<i64>,
    /// End of the last child's response, where the last reply started children.
    children_ended_us: Option<i64>,
}

impl Planner<'_> {
    /// Plans the main conversation, compactions and subagents included; gives the user's requests.
    fn main(&mut self) -> u32 {
        let requests = self.profile.user_requests.count(&mut self.rng).max(1);
        let mut conversation = self.open(ThreadRole::Main, 0);
        for request in 0..requests {
            let steps = self.profile.steps.count(&mut self.rng).max(1);
            let user_tokens = self.profile.user_tokens.count(&mut self.rng);
            if request > 0 {
                let thinking_ms = self.profile.human_ms.draw(&mut self.rng);
                conversation.next_us += (thinking_ms * 1000.0) as i64;
            }
            for step in 0..steps {
                let cause = match (step, request) {
                    (0, 0) => Cause::User { tokens: user_tokens + self.profile.notes_tokens },
                    (0, _) => Cause::User { tokens: user_tokens },
                    _ => Cause::Results,
                };
                let last = step + 1 == steps || self.turns_left == 1;
                let cause = self.compact_if_full(&mut conversation, cause);
                self.turn(&mut conversation, cause, last, true);
                self.turns_left -= 1;
                if self.turns_left == 0 {
                    return request + 1;
                }
                if last {
                    break;
                }
            }
        }
        requests
    }

    fn open(&mut self, role: ThreadRole, at_us: i64) -> Conversation {
        let Profile { system_tokens, tools_tokens, .. } = *self.profile;
        // A subagent has a shorter system prompt and all tools but the one that starts subagents.
        let prompt_tokens = match role {
            ThreadRole::Subagent { .. } => system_tokens / 2 + tools_tokens / 9 * 8,
            _ => system_tokens + tools_tokens,
        };
        self.threads.push(ThreadPlan { role, turns: Vec::new() });
        Conversation {
            thread: self.threads.len() - 1,
            prompt_tokens,
            reply_tokens: 0,
            result_tokens: 0,
            next_us: at_us,
            ended_us: None,
            children_ended_us: None,
        }
    }

    /// Ends a conversation whose next prompt would be too long and opens the one that goes on.
    fn compact_if_full(&mut self, conversation: &mut Conversation, cause: Cause) -> Cause {
        let added = conversation.added_tokens(cause);
        let full = conversation.prompt_tokens + added > self.profile.compact_at_tokens;
        // One turn for the summary and at least one to go on with.
        if !full || conversation.ended_us.is_none() || self.turns_left < 2 {
            return cause;
        }
        let user_tokens = match cause {
            Cause::User { tokens } => Some(tokens),
            _ => None,
        };
        self.turn(conversation, Cause::Compaction { user_tokens }, true, true);
        self.turns_left -= 1;
        let summary = conversation.reply_tokens;
        *conversation = self.open(ThreadRole::Continued, conversation.next_us);
        Cause::Summary { tokens: summary + self.profile.notes_tokens }
    }

    /// Plans one request and its reply, and the subagents that the reply starts.
    fn turn(
        &mut self,
        conversation: &mut Conversation,
        cause: Cause,
        last: bool,
        may_delegate: bool,
    ) {
        let profile = self.profile;
        let append_tokens = conversation.added_tokens(cause);
        let idle_us = conversation.ended_us.map(|ended| conversation.next_us - ended);
        let prefix_held = idle_us.is_none_or(|idle| idle as f64 <= profile.keep_cache_ms * 1000.0);
        let output_tokens = match cause {
            Cause::Compaction { .. } => profile.summary_tokens.count(&mut self.rng),
            _ => profile.output_tokens.count(&mut self.rng),
        };
        let computed = append_tokens + if prefix_held { 0 } else { conversation.prompt_tokens };
        let speed = profile.speed;
        let jitter = self.rng.random_range(0.9..1.1);
        let ttft_ms =
            (speed.first_ms + f64::from(computed) / speed.prefill_tokens_per_s * 1e3) * jitter;
        let decode_ms = f64::from(output_tokens.max(1) - 1) * speed.token_ms * jitter;
        let start_us = conversation.next_us;
        let end_us = start_us + ((ttft_ms + decode_ms) * 1000.0) as i64;
        let thread = conversation.thread;
        self.threads[thread].turns.push(TurnPlan {
            cause,
            start_us,
            ttft_us: (ttft_ms * 1000.0) as i64,
            end_us,
            wait_us: idle_us,
            residual_wait_us: conversation.children_ended_us.map(|ended| start_us - ended),
            prefix_tokens: conversation.prompt_tokens,
            append_tokens,
            prefix_held,
            output_tokens,
            calls: Vec::new(),
        });
        let calls = if last { Vec::new() } else { self.calls(thread, end_us, may_delegate) };
        conversation.reply(append_tokens, output_tokens, end_us, &calls);
        conversation.children_ended_us =
            calls.iter().filter_map(|call| Some(self.ended_us(call.child?))).max();
        let waiting_us = calls.iter().map(|call| call.own_us).max().unwrap_or(0);
        let agent_us = (profile.agent_ms.draw(&mut self.rng) * 1000.0) as i64;
        conversation.next_us = end_us + waiting_us + agent_us;
        if let Some(turn) = self.threads[thread].turns.last_mut() {
            turn.calls = calls;
        }
    }

    fn ended_us(&self, thread: usize) -> i64 {
        self.threads[thread].turns.last().map_or(0, |turn| turn.end_us)
    }

    /// The calls of one reply that ended at `at_us`; subagents are planned with all they do.
    fn calls(&mut self, thread: usize, at_us: i64, may_delegate: bool) -> Vec<CallPlan> {
        let profile = self.profile;
        let count = one_or_more(&mut self.rng, profile.another_call, 12);
        if may_delegate && self.rng.random_bool(profile.delegating_share) {
            return (0..count.min(4)).map(|_| self.delegate(thread, at_us)).collect();
        }
        let total: f64 = profile.tools.iter().map(|tool| tool.weight).sum();
        (0..count)
            .map(|_| {
                let mut at = self.rng.random_range(0.0..total);
                let tool = profile.tools.iter().find(|tool| {
                    at -= tool.weight;
                    at < 0.0
                });
                self.call(tool.unwrap_or(&profile.tools[0]), profile.compact_at_tokens / 8 / count)
            })
            .collect()
    }

    /// A call whose result is cut at `most_tokens`, as agents cut what would fill their context.
    fn call(&mut self, tool: &ToolUse, most_tokens: u32) -> CallPlan {
        let long = self.rng.random_bool(tool.long_share);
        let spread = if long { self.profile.long_ms } else { tool.short_ms };
        CallPlan {
            tool: tool.name,
            own_us: (spread.draw(&mut self.rng) * 1000.0) as i64,
            result_tokens: tool.result_tokens.count(&mut self.rng).min(most_tokens),
            is_error: self.rng.random_bool(self.profile.error_share),
            child: None,
        }
    }

    /// A call that starts a subagent, which runs beside its siblings from `at_us` on.
    fn delegate(&mut self, parent: usize, at_us: i64) -> CallPlan {
        let steps = self.profile.subagent_steps.count(&mut self.rng).max(1);
        let mut conversation = self.open(ThreadRole::Subagent { parent }, at_us + SPAWN_US);
        let child = conversation.thread;
        let tokens = self.profile.user_tokens.count(&mut self.rng) * 3;
        for step in 0..steps {
            let cause = if step == 0 { Cause::Task { tokens } } else { Cause::Results };
            self.turn(&mut conversation, cause, step + 1 == steps, false);
        }
        let result_tokens = conversation.reply_tokens;
        let own_us = self.ended_us(child) - at_us;
        CallPlan { tool: "Task", own_us, result_tokens, is_error: false, child: Some(child) }
    }
}

impl Conversation {
    /// Tokens that the next prompt adds to the last one.
    fn added_tokens(&self, cause: Cause) -> u32 {
        let brought = match cause {
            Cause::User { tokens } | Cause::Summary { tokens } | Cause::Task { tokens } => {
                tokens + MESSAGE_TOKENS
            }
            Cause::Results => self.result_tokens,
            Cause::Compaction { user_tokens } => {
                let user = user_tokens.map_or(self.result_tokens, |tokens| tokens + MESSAGE_TOKENS);
                user + COMPACTION_TOKENS
            }
        };
        self.reply_tokens + brought
    }

    fn reply(&mut self, append_tokens: u32, output_tokens: u32, end_us: i64, calls: &[CallPlan]) {
        self.prompt_tokens += append_tokens;
        self.reply_tokens = output_tokens + MESSAGE_TOKENS + CALL_TOKENS * calls.len() as u32;
        self.result_tokens = MESSAGE_TOKENS
            + calls.iter().map(|call| call.result_tokens + RESULT_TOKENS).sum::<u32>();
        self.ended_us = Some(end_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(profile: &Profile, count: u32) -> Vec<SessionPlan> {
        (0..count).map(|index| plan_session(profile, 11, index, None)).collect()
    }

    fn check_thread(plan: &SessionPlan, thread: &ThreadPlan) {
        for pair in thread.turns.windows(2) {
            let (before, turn) = (&pair[0], &pair[1]);
            assert_eq!(turn.prefix_tokens, before.prompt_tokens(), "a prompt holds the one before");
            assert!(turn.append_tokens > before.output_tokens, "the reply comes back");
            assert_eq!(turn.wait_us, Some(turn.start_us - before.end_us));
            let longest = before.calls.iter().map(|call| call.own_us).max().unwrap_or(0);
            assert!(turn.wait_us.unwrap() >= longest, "no request before the results");
            let children: Vec<usize> = before.calls.iter().filter_map(|call| call.child).collect();
            let ends =
                children.iter().map(|child| plan.threads[*child].turns.last().unwrap().end_us);
            let residual = ends.max().map(|end| turn.start_us - end);
            assert_eq!(turn.residual_wait_us, residual);
            assert!(residual.is_none_or(|us| us > 0), "children end first");
            for child in children {
                assert!(plan.threads[child].turns[0].start_us > before.end_us);
            }
            let answered = before.calls.is_empty();
            let brings_results =
                matches!(turn.cause, Cause::Results | Cause::Compaction { user_tokens: None });
            assert_eq!(brings_results, !answered, "calls are answered by the next request");
        }
        for turn in &thread.turns {
            assert!(turn.start_us < turn.start_us + turn.ttft_us);
            assert!(turn.start_us + turn.ttft_us <= turn.end_us);
        }
        assert!(thread.turns.last().unwrap().calls.is_empty(), "no call stays open");
    }

    #[test]
    fn threads_grow_turn_by_turn_and_parents_wait_for_their_children() {
        let plans = plans(&Profile::small(), 300);
        let mut subagents = 0;
        for plan in &plans {
            assert_eq!(plan.threads[0].role, ThreadRole::Main);
            for (index, thread) in plan.threads.iter().enumerate() {
                check_thread(plan, thread);
                if let ThreadRole::Subagent { parent } = thread.role {
                    subagents += 1;
                    let calls = plan.threads[parent].turns.iter().flat_map(|turn| &turn.calls);
                    assert_eq!(calls.filter(|call| call.child == Some(index)).count(), 1);
                }
            }
        }
        assert!(subagents > 10, "{subagents} subagents");
    }

    #[test]
    fn a_full_conversation_is_summed_up_and_goes_on_in_a_new_one() {
        let profile = Profile { compact_at_tokens: 4_000, ..Profile::small() };
        let mut seen = 0;
        for plan in plans(&profile, 100) {
            let mains: Vec<&ThreadPlan> = plan
                .threads
                .iter()
                .filter(|thread| !matches!(thread.role, ThreadRole::Subagent { .. }))
                .collect();
            for pair in mains.windows(2) {
                let last = pair[0].turns.last().unwrap();
                assert!(matches!(last.cause, Cause::Compaction { .. }));
                assert!(last.prompt_tokens() > 4_000);
                let first = &pair[1].turns[0];
                assert!(matches!(first.cause, Cause::Summary { .. }));
                assert!(first.start_us >= last.end_us);
                assert_eq!(first.prefix_tokens, profile.system_tokens + profile.tools_tokens);
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen} compactions");
    }

    #[test]
    fn a_plan_depends_on_its_seed_and_index_alone() {
        let profile = Profile::tracelab();
        let plan = plan_session(&profile, 5, 9, None);
        assert_eq!(plan, plan_session(&profile, 5, 9, None));
        assert_ne!(plan.threads, plan_session(&profile, 6, 9, None).threads);
        assert_ne!(plan.threads, plan_session(&profile, 5, 10, None).threads);
    }

    #[test]
    fn max_turns_cuts_the_main_conversation() {
        for cap in [1, 2, 7] {
            for index in 0..40 {
                let plan = plan_session(&Profile::small(), 3, index, Some(cap));
                let turns: usize = plan
                    .threads
                    .iter()
                    .filter(|thread| !matches!(thread.role, ThreadRole::Subagent { .. }))
                    .map(|thread| thread.turns.len())
                    .sum();
                assert!((1..=cap as usize).contains(&turns), "{turns} turns");
                for thread in &plan.threads {
                    check_thread(&plan, thread);
                }
            }
        }
    }

    #[test]
    fn prompts_of_the_small_profile_stay_below_their_limit() {
        let plans = plans(&Profile::small(), 500);
        let turns = plans.iter().flat_map(|plan| &plan.threads).flat_map(|thread| &thread.turns);
        let longest = turns.map(TurnPlan::prompt_tokens).max().unwrap();
        assert!((22_000..28_000).contains(&longest), "{longest} tokens");
    }
}
