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
mod tests;
