//! The scheduler in virtual time, against answers worked out by hand.

use super::*;

/// Microseconds: a 1,000, b 10, c 100, d 1.
const TIMING: Timing = Timing {
    step_us: 1_000.0,
    prefill_token_us: 10.0,
    decode_sequence_us: 100.0,
    kv_token_us: 1.0,
};

struct Engine {
    scheduler: Scheduler,
    metrics: Metrics,
    now_us: i64,
    ids: RequestId,
}

impl Engine {
    fn new(kv_blocks: u32, max_num_seqs: usize, max_num_batched_tokens: usize) -> Self {
        let config =
            SchedulerConfig { timing: TIMING, kv_blocks, max_num_seqs, max_num_batched_tokens };
        let metrics = Metrics::new(100_000);
        Self { scheduler: Scheduler::new(config), metrics, now_us: 0, ids: 0 }
    }

    fn submit(&mut self, arrived_us: i64, prompt: &[u32], output: u32) -> RequestId {
        self.ids += 1;
        self.scheduler.submit(NewRequest {
            id: self.ids,
            arrived_ns: arrived_us * 1_000,
            prompt: TokenChain::new(None, prompt),
            output: (0..output).map(|token| 5_000_000 + token).collect(),
            finish: Finish::Length,
            max_tokens: output,
        });
        self.ids
    }

    /// Runs one step; its duration in µs and the ids that got a token.
    fn step(&mut self) -> (i64, Vec<RequestId>) {
        self.now_us = self.scheduler.next_start_ns(self.now_us * 1_000) / 1_000;
        let ns = self.scheduler.start_step(self.now_us * 1_000, &mut self.metrics).unwrap();
        assert_eq!(ns % 1_000, 0);
        self.now_us += ns / 1_000;
        let emitted = self.scheduler.finish_step(self.now_us * 1_000, &mut self.metrics);
        (ns / 1_000, emitted.into_iter().map(|token| token.id).collect())
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            if self.scheduler.is_idle() {
                return;
            }
            self.step();
        }
        panic!("never idle");
    }
}

fn prompt(first: u32, tokens: u32) -> Vec<u32> {
    (first..first + tokens).collect()
}

#[test]
fn a_long_prompt_is_computed_in_chunks() {
    let mut engine = Engine::new(1_000, 8, 512);
    engine.submit(0, &prompt(0, 1_000), 2);
    // 512 tokens: a + 512 b + 512 d.
    assert_eq!(engine.step(), (1_000 + 5_120 + 512, vec![]));
    // The other 488, with 1,000 in the cache.
    assert_eq!(engine.step(), (1_000 + 4_880 + 1_000, vec![1]));
    // TTFT is the sum of both steps.
    assert_eq!((engine.metrics.ttft.sum() * 1e6).round() as i64, 6_632 + 6_880);
    // One decode: a + c + 1,001 d.
    assert_eq!(engine.step(), (1_000 + 100 + 1_001, vec![1]));
    assert!(engine.scheduler.is_idle());
    assert_eq!((engine.metrics.itl.sum() * 1e6).round() as i64, 2_101);
    assert_eq!(engine.metrics.finished_length, 1);
    assert_eq!((engine.metrics.prompt_tokens, engine.metrics.generation_tokens), (1_000, 2));
    // Step by step: nothing, 1,000 + 1, 1.
    assert!((engine.metrics.iteration_tokens.sum() - 1_002.0).abs() < 1e-9);
}

#[test]
fn a_batch_of_decodes_costs_a_plus_cn_plus_d_kv() {
    let mut engine = Engine::new(1_000, 8, 512);
    for first in [0, 1_000, 2_000] {
        engine.submit(0, &prompt(first, 20), 3);
    }
    assert_eq!(engine.step(), (1_000 + 600 + 60, vec![1, 2, 3]));
    assert_eq!(engine.step(), (1_000 + 300 + 63, vec![1, 2, 3]));
    assert_eq!(engine.step(), (1_000 + 300 + 66, vec![1, 2, 3]));
    assert!(engine.scheduler.is_idle());
}

#[test]
fn decodes_go_before_prefill_within_the_budget() {
    let mut engine = Engine::new(1_000, 8, 100);
    engine.submit(0, &prompt(0, 10), 5);
    engine.step();
    engine.submit(0, &prompt(1_000, 150), 1);
    // 1 decode with 11 in the cache, and 99 tokens of the new prompt.
    assert_eq!(engine.step(), (1_000 + 990 + 100 + 11 + 99, vec![1]));
    assert_eq!(engine.step(), (1_000 + 510 + 100 + 12 + 150, vec![1, 2]));
}

#[test]
fn the_sequence_limit_makes_requests_wait() {
    let mut engine = Engine::new(1_000, 1, 512);
    engine.submit(0, &prompt(0, 10), 2);
    engine.submit(0, &prompt(100, 10), 1);
    let (first, ids) = engine.step();
    assert_eq!((ids, engine.metrics.waiting, engine.metrics.running), (vec![1], 1, 1));
    let (second, _) = engine.step();
    let (_, ids) = engine.step();
    assert_eq!(ids, [2]);
    let queue_us = engine.metrics.page("m", 1);
    let line = "vllm:request_queue_time_seconds_sum{engine=\"0\",model_name=\"m\"} ";
    let sum: f64 = queue_us.split(line).nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    assert_eq!((sum * 1e6).round() as i64, first + second);
}

#[test]
fn a_step_waits_for_the_first_arrival_and_takes_no_later_one() {
    let mut engine = Engine::new(1_000, 8, 512);
    engine.submit(500, &prompt(0, 16), 1);
    engine.submit(501, &prompt(100, 16), 1);
    assert_eq!(engine.step(), (1_000 + 160 + 16, vec![1]));
    assert_eq!(engine.now_us, 500 + 1_176);
    assert_eq!(engine.step().1, [2]);
}

#[test]
fn the_second_turn_finds_the_first_in_the_cache() {
    let mut engine = Engine::new(1_000, 8, 512);
    engine.submit(0, &prompt(0, 100), 30);
    engine.drain();
    // Prompt, the 30 tokens it generated, and 50 more. The last generated token was never
    // computed: 129 tokens were, 8 full blocks.
    let mut second = prompt(0, 100);
    second.extend((0..30).map(|token| 5_000_000 + token));
    second.extend(prompt(900, 50));
    engine.submit(engine.now_us, &second, 1);
    let (us, _) = engine.step();
    assert_eq!(us, 1_000 + (180 - 128) * 10 + 180);
    assert_eq!((engine.metrics.prefix_queries, engine.metrics.prefix_hits), (280, 128));
    assert_eq!(engine.metrics.prompt_tokens_cached, 128);
    assert!(engine.scheduler.reset_prefix_cache());
    engine.submit(engine.now_us, &second, 1);
    assert_eq!(engine.step().0, 1_000 + 1_800 + 180);
}

#[test]
fn equal_prompts_share_within_one_step() {
    let mut engine = Engine::new(1_000, 8, 512);
    engine.submit(0, &prompt(0, 40), 1);
    engine.submit(0, &prompt(0, 40), 1);
    // 40 computed for the first, 8 for the second.
    assert_eq!(engine.step(), (1_000 + 480 + 80, vec![1, 2]));
    assert_eq!(engine.metrics.prefix_hits, 32);
}

#[test]
fn the_latest_arrived_is_preempted_and_starts_over() {
    // 6 blocks: two prompts of 32 tokens, each with one block to grow.
    let mut engine = Engine::new(6, 8, 512);
    engine.submit(0, &prompt(0, 32), 20);
    engine.submit(0, &prompt(1_000, 32), 20);
    for _ in 0..17 {
        assert_eq!(engine.step().1, [1, 2]);
    }
    assert_eq!(engine.metrics.preemptions, 0);
    // The first needs a fourth block: the second goes, and stays out of this step.
    assert_eq!(engine.step(), (1_000 + 100 + 49, vec![1]));
    assert_eq!((engine.metrics.preemptions, engine.metrics.waiting), (1, 1));
    // 49 tokens need 4 blocks; 2 are free.
    assert_eq!(engine.step().1, [1]);
    assert_eq!(engine.step().1, [1]);
    // The first is done. Of the second's three full blocks the end was taken for the first's
    // fourth block: 32 of 49 tokens come from the cache, 17 are computed again.
    assert_eq!(engine.step(), (1_000 + 170 + 49, vec![2]));
    engine.drain();
    assert_eq!(engine.metrics.preemptions, 1);
    assert_eq!((engine.metrics.generation_tokens, engine.metrics.prompt_tokens), (40, 64));
    // Recomputed tokens are no second prompt, and their hits no prefix hits of a request.
    assert_eq!((engine.metrics.prefix_queries, engine.metrics.prefix_hits), (64, 0));
    assert!(engine.metrics.kv_usage.abs() < f64::EPSILON);
}

#[test]
fn a_prompt_that_does_not_fit_waits_whole() {
    let mut engine = Engine::new(8, 8, 16);
    engine.submit(0, &prompt(0, 64), 2);
    engine.submit(0, &prompt(1_000, 80), 1);
    for _ in 0..5 {
        engine.step();
        assert!(engine.metrics.running + engine.metrics.waiting > 0);
    }
    // Four chunks and a decode: the first is gone, the second has its first chunk ahead.
    assert_eq!((engine.metrics.running, engine.metrics.waiting), (0, 1));
    assert_eq!(engine.metrics.preemptions, 0);
    engine.drain();
    assert_eq!(engine.metrics.finished_length, 2);
}

#[test]
fn a_client_that_leaves_frees_its_blocks() {
    let mut engine = Engine::new(8, 1, 512);
    let first = engine.submit(0, &prompt(0, 64), 50);
    let second = engine.submit(0, &prompt(1_000, 64), 50);
    engine.step();
    assert!(engine.metrics.kv_usage > 0.0);
    assert!(!engine.scheduler.reset_prefix_cache());
    engine.scheduler.abort_if(|id| id == first || id == second, &mut engine.metrics);
    assert!(engine.scheduler.is_idle());
    assert_eq!((engine.metrics.finished_abort, engine.metrics.waiting), (2, 0));
    assert!(engine.metrics.kv_usage.abs() < f64::EPSILON);
    assert_eq!((engine.metrics.prompt_tokens, engine.metrics.generation_tokens), (64, 1));
}
