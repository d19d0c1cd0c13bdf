//! Continuous batching in virtual time: which sequences compute which tokens in the next step.
//!
//! Pure: the caller says what time it is. A step serves the running sequences first, in the order of
//! their arrival, then admits waiting ones while token budget, sequence limit and KV cache allow; long
//! prompts are computed in chunks. A sequence that needs a block when none is left preempts the latest
//! arrived one, which starts over from its cached prefix. When a step ends, every sequence whose tokens
//! are all computed has one new token. The rules are vLLM's V1 scheduler's (first come, first served).

use std::collections::VecDeque;

use super::kv_cache::{BLOCK_TOKENS, BlockId, KvCache, TokenChain, blocks_for};
use super::metrics::{FinishedRequest, Metrics};
use super::plan::Finish;
use super::timing::{StepLoad, Timing};

/// Limits of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchedulerConfig {
    /// The cost model.
    pub timing: Timing,
    /// KV blocks; they must hold the longest sequence.
    pub kv_blocks: u32,
    /// Most sequences in a step.
    pub max_num_seqs: usize,
    /// Most tokens in a step.
    pub max_num_batched_tokens: usize,
}

/// Identity of a request, chosen by the caller.
pub type RequestId = u64;

/// A request.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Identity.
    pub id: RequestId,
    /// When it came.
    pub arrived_ns: i64,
    /// Its prompt; never empty.
    pub prompt: TokenChain,
    /// The tokens it will generate; never empty.
    pub output: Vec<u32>,
    /// Why it will end.
    pub finish: Finish,
    /// The `max_tokens` in force.
    pub max_tokens: u32,
}

/// A token that a step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emitted {
    /// Whose.
    pub id: RequestId,
    /// Which of its output.
    pub index: usize,
    /// Whether it is the last.
    pub last: bool,
    /// Prompt tokens that the request found in the cache.
    pub cached_tokens: usize,
}

#[derive(Debug)]
struct Sequence {
    id: RequestId,
    arrived_ns: i64,
    output: Vec<u32>,
    finish: Finish,
    max_tokens: u32,
    // Prompt and what was generated so far.
    chain: TokenChain,
    prompt_tokens: usize,
    generated: usize,
    computed: usize,
    scheduled: usize,
    blocks: Vec<BlockId>,
    cached_tokens: Option<usize>,
    preemptions: u64,
    scheduled_ns: i64,
    first_token_ns: i64,
    last_token_ns: i64,
}

impl Sequence {
    fn new(request: NewRequest) -> Self {
        Self {
            id: request.id,
            arrived_ns: request.arrived_ns,
            output: request.output,
            finish: request.finish,
            max_tokens: request.max_tokens,
            prompt_tokens: request.prompt.len(),
            chain: request.prompt,
            generated: 0,
            computed: 0,
            scheduled: 0,
            blocks: Vec::new(),
            cached_tokens: None,
            preemptions: 0,
            scheduled_ns: 0,
            first_token_ns: 0,
            last_token_ns: 0,
        }
    }

    /// Tokens that still need computing.
    fn due(&self) -> usize {
        self.chain.len() - self.computed
    }
}

/// The scheduler of one engine.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    // In the order of their admission.
    running: Vec<Sequence>,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(config: SchedulerConfig) -> Self {
        let cache = KvCache::new(config.kv_blocks);
        Self { config, cache, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Takes a request in.
    pub fn submit(&mut self, request: NewRequest) {
        self.waiting.push_back(Sequence::new(request));
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// When the next step can begin, given that the engine is free at `free_ns`: at once, or when the
    /// first waiting request arrives.
    pub fn next_start_ns(&self, free_ns: i64) -> i64 {
        match self.waiting.front() {
            Some(first) if self.running.is_empty() => free_ns.max(first.arrived_ns),
            _ => free_ns,
        }
    }

    /// Drops every request for which `gone` says so and counts it as aborted.
    pub fn abort_if(&mut self, mut gone: impl FnMut(RequestId) -> bool, metrics: &mut Metrics) {
        let before = self.running.len() + self.waiting.len();
        let cache = &mut self.cache;
        self.running.retain(|sequence| {
            let keep = !gone(sequence.id);
            if !keep {
                cache.release(&sequence.blocks);
            }
            keep
        });
        self.waiting.retain(|sequence| !gone(sequence.id));
        let aborted = before - self.running.len() - self.waiting.len();
        metrics.finished_abort += aborted as u64;
        self.show(metrics);
    }

    /// Forgets the prefix cache. Refused while anything is in work.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.running.is_empty() && self.cache.reset()
    }

    /// Begins a step at `now_ns`; returns its duration, or none if there is nothing to do then.
    pub fn start_step(&mut self, now_ns: i64, metrics: &mut Metrics) -> Option<i64> {
        let mut budget = self.config.max_num_batched_tokens;
        let preempted = self.schedule_running(&mut budget, metrics);
        if !preempted {
            self.admit_waiting(now_ns, &mut budget, metrics);
        }
        self.show(metrics);
        let load = self.load();
        (load.kv_tokens > 0).then(|| self.config.timing.step_ns(load))
    }

    /// Gives the running sequences their tokens; true if one had to go.
    fn schedule_running(&mut self, budget: &mut usize, metrics: &mut Metrics) -> bool {
        for sequence in &mut self.running {
            sequence.scheduled = 0;
        }
        let mut preempted = false;
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let sequence = &self.running[index];
            let tokens = sequence.due().min(*budget);
            let needed = blocks_for(sequence.computed + tokens) - sequence.blocks.len();
            let Some(blocks) = self.cache.allocate(needed) else {
                preempted = true;
                self.preempt_latest(metrics);
                continue;
            };
            self.running[index].blocks.extend(blocks);
            self.assign(index, tokens);
            *budget -= tokens;
            index += 1;
        }
        preempted
    }

    fn preempt_latest(&mut self, metrics: &mut Metrics) {
        let Some(mut sequence) = self.running.pop() else { return };
        self.cache.release(&sequence.blocks);
        sequence.blocks.clear();
        sequence.computed = 0;
        sequence.preemptions += 1;
        metrics.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    fn admit_waiting(&mut self, now_ns: i64, budget: &mut usize, metrics: &mut Metrics) {
        while *budget > 0 && self.running.len() < self.config.max_num_seqs {
            let Some(sequence) = self.waiting.front() else { return };
            if sequence.arrived_ns > now_ns {
                return;
            }
            // At least one token is computed, so the last block is never served whole.
            let most = (sequence.chain.len() - 1) / BLOCK_TOKENS;
            let hits = self.cache.lookup(sequence.chain.hashes(), most);
            let room = self.cache.unused() - self.cache.unused_among(&hits);
            if blocks_for(sequence.chain.len()) - hits.len() > room {
                return;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { return };
            self.cache.share(&hits);
            sequence.computed = hits.len() * BLOCK_TOKENS;
            sequence.blocks = hits;
            let tokens = sequence.due().min(*budget);
            let needed = blocks_for(sequence.computed + tokens) - sequence.blocks.len();
            sequence.blocks.extend(self.cache.allocate(needed).unwrap_or_default());
            if sequence.cached_tokens.is_none() {
                sequence.cached_tokens = Some(sequence.computed);
                sequence.scheduled_ns = now_ns;
                metrics.prefix_queries += sequence.prompt_tokens as u64;
                metrics.prefix_hits += sequence.computed as u64;
            }
            self.running.push(sequence);
            self.assign(self.running.len() - 1, tokens);
            *budget -= tokens;
        }
    }

    /// Schedules tokens of a sequence that has the blocks for them, and makes the blocks they fill
    /// findable: whoever shares the prefix may build on them from this step on.
    fn assign(&mut self, index: usize, tokens: usize) {
        let sequence = &mut self.running[index];
        sequence.scheduled = tokens;
        let from = sequence.computed / BLOCK_TOKENS;
        let until = (sequence.computed + tokens) / BLOCK_TOKENS;
        for block in from..until {
            self.cache.remember(sequence.blocks[block], sequence.chain.hashes()[block]);
        }
    }

    fn load(&self) -> StepLoad {
        let mut load = StepLoad::default();
        for sequence in self.running.iter().filter(|sequence| sequence.scheduled > 0) {
            if sequence.generated > 0 && sequence.due() == 1 {
                load.decode_sequences += 1;
            } else {
                load.prefill_tokens += sequence.scheduled as u64;
            }
            load.kv_tokens += (sequence.computed + sequence.scheduled) as u64;
        }
        load
    }

    /// Ends the step at `now_ns`: the tokens that it made, in the order of the sequences.
    pub fn finish_step(&mut self, now_ns: i64, metrics: &mut Metrics) -> Vec<Emitted> {
        let mut emitted = Vec::new();
        let mut computed_prompt = 0;
        for sequence in &mut self.running {
            sequence.computed += std::mem::take(&mut sequence.scheduled);
            if sequence.due() > 0 {
                continue;
            }
            if sequence.generated == 0 {
                computed_prompt += sequence.count_first(now_ns, metrics);
            } else {
                metrics.itl.observe(seconds(sequence.last_token_ns, now_ns));
            }
            emitted.push(sequence.emit(now_ns));
        }
        metrics.generation_tokens += emitted.len() as u64;
        metrics.iteration_tokens.observe((computed_prompt + emitted.len()) as f64);
        let cache = &mut self.cache;
        self.running.retain(|sequence| {
            let keep = sequence.generated < sequence.output.len();
            if !keep {
                cache.release(&sequence.blocks);
                metrics.finish(&sequence.finished());
            }
            keep
        });
        self.show(metrics);
        emitted
    }

    fn show(&self, metrics: &mut Metrics) {
        metrics.running = self.running.len() as u64;
        metrics.waiting = self.waiting.len() as u64;
        metrics.kv_usage = self.cache.usage();
    }
}

impl Sequence {
    /// Counts a first token; returns the prompt tokens that were computed for it.
    fn count_first(&mut self, now_ns: i64, metrics: &mut Metrics) -> usize {
        let cached = self.cached_tokens.unwrap_or_default();
        metrics.prompt_tokens += self.prompt_tokens as u64;
        metrics.prompt_tokens_cached += cached as u64;
        metrics.ttft.observe(seconds(self.arrived_ns, now_ns));
        self.first_token_ns = now_ns;
        self.prompt_tokens - cached
    }

    fn emit(&mut self, now_ns: i64) -> Emitted {
        let index = self.generated;
        self.generated += 1;
        self.last_token_ns = now_ns;
        let last = self.generated == self.output.len();
        if !last {
            self.chain.push(self.output[index]);
        }
        let cached_tokens = self.cached_tokens.unwrap_or_default();
        Emitted { id: self.id, index, last, cached_tokens }
    }

    fn finished(&self) -> FinishedRequest {
        FinishedRequest {
            stopped: self.finish == Finish::Stop,
            prompt_tokens: self.prompt_tokens as u64,
            cached_tokens: self.cached_tokens.unwrap_or_default() as u64,
            generation_tokens: self.generated as u64,
            max_tokens: u64::from(self.max_tokens),
            preemptions: self.preemptions,
            queue_s: seconds(self.arrived_ns, self.scheduled_ns),
            prefill_s: seconds(self.scheduled_ns, self.first_token_ns),
            decode_s: seconds(self.first_token_ns, self.last_token_ns),
            e2e_s: seconds(self.arrived_ns, self.last_token_ns),
        }
    }
}

fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    (to_ns - from_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
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
        let sum: f64 =
            queue_us.split(line).nth(1).unwrap().lines().next().unwrap().parse().unwrap();
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
}
