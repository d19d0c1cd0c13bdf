//! One metrics page read through the catalog: totals and gauges at one moment.
//!
//! Pure. Series that differ only in labels (data-parallel engines, ranks) are summed, never the first
//! taken; of the KV-cache gauges the fullest counts. What two snapshots say about the requests between
//! them is `delta`'s.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::catalog::{EngineKind, Pick, Quantity, Source};
use crate::http::scrape::{self, ParseError, Sample};

/// Why a page gives no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The text is not a metrics page.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The page is fine but holds nothing of the engine.
    #[error(
        "the page has {samples} samples, none of them by a name of vLLM, SGLang, TensorRT-LLM or llama.cpp"
    )]
    NoEngine {
        /// Samples of any name.
        samples: usize,
    },
}

/// What a page said.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    kind: EngineKind,
    /// One place per source of the catalog; empty where the page lacks it.
    values: Vec<Option<f64>>,
    finished: BTreeMap<String, f64>,
    by_source: BTreeMap<String, f64>,
}

/// What a sample name feeds.
#[derive(Debug, Clone, Copy)]
enum Target {
    Source { place: usize, pick: Pick, quantity: Quantity },
    Finished { place: usize },
    BySource { label: &'static str },
}

/// An engine's catalog laid out for reading pages.
#[derive(Debug)]
struct Index {
    /// Sorted by length and then by bytes: most lookups end at the length.
    by_name: Vec<(String, Vec<Target>)>,
    /// Sources in the order of `Snapshot::values`.
    sources: Vec<(Quantity, Source)>,
}

impl Index {
    fn new(kind: EngineKind) -> Self {
        let names = kind.names();
        let sources: Vec<(Quantity, Source)> = names
            .quantities
            .iter()
            .flat_map(|(quantity, sources)| sources.iter().map(|source| (*quantity, *source)))
            .collect();
        let mut targets: BTreeMap<String, Vec<Target>> = BTreeMap::new();
        for (place, (quantity, source)) in sources.iter().enumerate() {
            let target = Target::Source { place, pick: source.pick, quantity: *quantity };
            targets.entry(format!("{}{}", names.prefix, source.sample)).or_default().push(target);
        }
        for (place, finished) in names.finished.iter().enumerate() {
            let name = format!("{}{}", names.prefix, finished.sample);
            targets.entry(name).or_default().push(Target::Finished { place });
        }
        if let Some((sample, label)) = names.by_source {
            let name = format!("{}{sample}", names.prefix);
            targets.entry(name).or_default().push(Target::BySource { label });
        }
        if names.bare_before {
            let bare = |name: &String| name[names.prefix.len()..].to_owned();
            let copies: Vec<_> =
                targets.iter().map(|(name, feeds)| (bare(name), feeds.clone())).collect();
            targets.extend(copies);
        }
        let mut by_name: Vec<_> = targets.into_iter().collect();
        by_name.sort_by(|(left, _), (right, _)| order(left, right));
        Self { by_name, sources }
    }

    fn of(kind: EngineKind) -> &'static Self {
        static INDICES: LazyLock<[Index; 4]> = LazyLock::new(|| EngineKind::ALL.map(Index::new));
        &INDICES[kind as usize]
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.binary_search_by(|(known, _)| order(known, name)).ok()
    }
}

fn order(left: &str, right: &str) -> std::cmp::Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// The engine whose names a page holds; of several the one with most.
pub fn detect(page: &str) -> Result<EngineKind, PageError> {
    let mut counts = EngineKind::ALL.map(|kind| (0_usize, kind));
    let mut bare = counts;
    let known =
        |name: &str| EngineKind::ALL.into_iter().find(|kind| Index::of(*kind).find(name).is_some());
    let named = |name: &str| known(name).map(|kind| (kind, name.starts_with(kind.names().prefix)));
    let samples = scrape::scan(page, named, |(kind, is_prefixed), _| {
        let counts = if is_prefixed { &mut counts } else { &mut bare };
        counts[kind as usize].0 += 1;
    })?;
    // Names without a prefix are anybody's: they count only where no engine's own are.
    let counts = if counts.iter().all(|(count, _)| *count == 0) { bare } else { counts };
    // `max_by_key` keeps the last of equals; with the first engine last, vLLM wins a draw.
    match counts.into_iter().rev().max_by_key(|(count, _)| *count) {
        Some((1.., kind)) => Ok(kind),
        _ => Err(PageError::NoEngine { samples }),
    }
}

impl Snapshot {
    /// Reads a page of an engine.
    pub fn read(page: &str, kind: EngineKind) -> Result<Self, PageError> {
        let index = Index::of(kind);
        let mut snapshot = Self::zero(kind);
        let mut found = false;
        let samples = scrape::scan(
            page,
            |name| index.find(name),
            |row, sample| {
                found = true;
                for target in &index.by_name[row].1 {
                    snapshot.add(*target, &sample);
                }
            },
        )?;
        if found { Ok(snapshot) } else { Err(PageError::NoEngine { samples }) }
    }

    /// An engine that has just started and told nothing yet.
    pub fn zero(kind: EngineKind) -> Self {
        let values = vec![None; Index::of(kind).sources.len()];
        Self { kind, values, finished: BTreeMap::new(), by_source: BTreeMap::new() }
    }

    fn add(&mut self, target: Target, sample: &Sample<'_>) {
        // What is not a number is not known.
        if !sample.value.is_finite() {
            return;
        }
        match target {
            Target::Source { place, pick, quantity } => {
                if pick.takes(sample.labels) {
                    let so_far = self.values[place];
                    let fold =
                        if quantity == Quantity::KvUsage { f64::max } else { std::ops::Add::add };
                    self.values[place] =
                        Some(so_far.map_or(sample.value, |value| fold(value, sample.value)));
                }
            }
            Target::BySource { label } => {
                let Some(source) = sample.labels.get(label) else { return };
                *self.by_source.entry(source.into_owned()).or_default() += sample.value;
            }
            Target::Finished { place } => {
                let finished = &self.kind.names().finished[place];
                let told = finished.label.and_then(|label| sample.labels.get(label));
                let reason = told.as_deref().unwrap_or(finished.reason);
                match self.finished.get_mut(reason) {
                    Some(count) => *count += sample.value,
                    None => {
                        self.finished.insert(reason.to_owned(), sample.value);
                    }
                }
            }
        }
    }

    /// The engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// A quantity by its most trusted source on this page.
    pub fn get(&self, quantity: Quantity) -> Option<f64> {
        let place = self.resolve(quantity)?;
        let value = self.values[place]?;
        Some(value - self.less(place).filter_map(|less| self.get(less)).sum::<f64>())
    }

    /// How much a quantity grew since `earlier`, by the source that this page trusts most. What the
    /// earlier page did not have yet was 0: labelled counters appear with their first event.
    pub fn growth(&self, quantity: Quantity, earlier: &Self) -> Option<f64> {
        let place = self.resolve(quantity)?;
        let grown = self.values[place]? - earlier.values[place].unwrap_or(0.0);
        let less = self.less(place).filter_map(|less| self.growth(less, earlier)).sum::<f64>();
        Some(grown - less)
    }

    /// Completed requests of all reasons so far.
    pub fn finished_total(&self) -> Option<f64> {
        (!self.finished.is_empty()).then(|| self.finished.values().sum())
    }

    /// Completed requests per reason since `earlier`; only reasons that occurred.
    pub fn finished_growth(&self, earlier: &Self) -> BTreeMap<&str, u64> {
        self.finished
            .iter()
            .map(|(reason, count)| (reason, count - earlier.finished.get(reason).unwrap_or(&0.0)))
            .filter(|(_, grown)| *grown >= 0.5)
            .map(|(reason, grown)| (reason.as_str(), grown.round() as u64))
            .collect()
    }

    /// Prompt tokens since `earlier` by where they came from, in the engine's own words.
    pub fn by_source_growth(&self, earlier: &Self) -> Option<BTreeMap<&str, u64>> {
        let grown = |(source, tokens): (&String, &f64)| {
            let before = earlier.by_source.get(source).unwrap_or(&0.0);
            (tokens - before).max(0.0).round() as u64
        };
        let sources = self.by_source.iter();
        (!self.by_source.is_empty()).then(|| sources.map(|of| (of.0.as_str(), grown(of))).collect())
    }

    /// Whether a counter is lower than, or gone since, `earlier`: the engine started anew.
    pub fn went_back(&self, earlier: &Self) -> bool {
        let back = |now: Option<f64>, then: Option<f64>| {
            then.is_some_and(|then| then > 0.0 && now.unwrap_or(0.0) < then)
        };
        let sources = &Index::of(self.kind).sources;
        let mut values = self.values.iter().zip(&earlier.values).zip(sources);
        values.any(|((now, then), (quantity, _))| quantity.is_counter() && back(*now, *then))
            || earlier
                .finished
                .iter()
                .any(|(reason, then)| back(self.finished.get(reason).copied(), Some(*then)))
    }

    /// Quantities that the engine's catalog or this page lacks.
    pub fn lacks(&self) -> Vec<Quantity> {
        Quantity::ALL.into_iter().filter(|quantity| self.get(*quantity).is_none()).collect()
    }

    /// The sample from which cached tokens are taken.
    pub fn cached_tokens_sample(&self) -> Option<String> {
        let (_, source) = &Index::of(self.kind).sources[self.resolve(Quantity::CachedTokens)?];
        Some(format!("{}{}", self.kind.names().prefix, source.sample))
    }

    /// Why the cache figures of this page cannot be trusted, where they contradict each other. Versions
    /// of vLLM before mid-2026 counted a waiting request's lookups once more at each retry.
    pub fn cache_warning(&self) -> Option<String> {
        let prompt = self.get(Quantity::PromptTokens)?;
        if let Some(by_source) = self.get(Quantity::PromptTokensBySource) {
            return ((by_source - prompt).abs() >= 1.0).then(|| {
                format!("prompt tokens by source add up to {by_source}, prompt tokens are {prompt}")
            });
        }
        let queries = self.get(Quantity::CacheQueries)?;
        (queries - prompt >= 1.0).then(|| {
            format!(
                "{queries} tokens were looked up in the prefix cache but only {prompt} prompt tokens \
                 came: lookups were counted more than once, so hits are too high as well"
            )
        })
    }

    fn resolve(&self, quantity: Quantity) -> Option<usize> {
        let sources = &Index::of(self.kind).sources;
        sources.iter().enumerate().position(|(place, (known, source))| {
            *known == quantity
                && self.values[place].is_some()
                && source.less.first().is_none_or(|less| self.get(*less).is_some())
        })
    }

    fn less(&self, place: usize) -> impl Iterator<Item = Quantity> + use<> {
        Index::of(self.kind).sources[place].1.less.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity as Q;
    use super::*;

    const VLLM_0_32: &str = include_str!("../../tests/data/vllm-0.32.0.metrics.txt");
    const VLLM_0_12: &str = include_str!("../../tests/data/vllm-0.12.metrics.txt");
    const VLLM_0_8: &str = include_str!("../../tests/data/vllm-0.8.metrics.txt");
    const SGLANG: &str = include_str!("../../tests/data/sglang.metrics.txt");
    const TENSORRT_LLM: &str = include_str!("../../tests/data/tensorrt-llm.metrics.txt");
    const LLAMA_CPP: &str = include_str!("../../tests/data/llama.cpp.metrics.txt");

    /// Checks every quantity: what `expected` does not name, the page must lack.
    fn check(page: &str, kind: EngineKind, finished: &[(&str, f64)], expected: &[(Q, f64)]) {
        assert_eq!(detect(page), Ok(kind));
        let snapshot = Snapshot::read(page, kind).expect("a page");
        for quantity in Q::ALL {
            let value =
                expected.iter().find(|(known, _)| *known == quantity).map(|(_, value)| *value);
            let read = snapshot.get(quantity);
            let close = match (read, value) {
                (Some(read), Some(value)) => (read - value).abs() < 1e-9,
                (read, value) => read == value,
            };
            assert!(close, "{kind:?} {}: {read:?}, not {value:?}", quantity.as_str());
            assert_eq!(snapshot.lacks().contains(&quantity), value.is_none());
        }
        let finished: BTreeMap<String, f64> =
            finished.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        assert_eq!(snapshot.finished, finished);
    }

    #[test]
    fn vllm_of_today() {
        check(
            VLLM_0_32,
            EngineKind::Vllm,
            &[("stop", 1.0), ("length", 1.0), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)],
            &[
                (Q::Running, 0.0),
                (Q::Waiting, 0.0),
                (Q::KvUsage, 0.0),
                // The cancelled request counts here, but not among the requests below.
                (Q::PromptTokens, 4833.0),
                (Q::PromptTokensBySource, 4833.0),
                (Q::OutputTokens, 27.0),
                (Q::CachedTokens, 3072.0),
                (Q::ExternalCachedTokens, 0.0),
                (Q::CacheQueries, 4833.0),
                (Q::Preemptions, 0.0),
                (Q::Requests, 2.0),
                (Q::RequestPromptTokens, 3222.0),
                (Q::RequestOutputTokens, 7.0),
                (Q::RequestComputedTokens, 1686.0),
                (Q::QueueSeconds, 0.000_257_141_000_020_055_8),
                (Q::PrefillSeconds, 0.123_927_562_999_597_28),
                (Q::DecodeSeconds, 0.363_872_936_000_007_03),
                (Q::E2eSeconds, 0.517_273_426_055_908_2),
                (Q::TtftSeconds, 0.230_658_769_607_543_95),
                (Q::TtftCount, 3.0),
                (Q::TokenGapSeconds, 0.072_774_587_200_001_4),
                (Q::TokenGapCount, 2.0),
            ],
        );
    }

    #[test]
    fn vllm_with_two_engines_is_summed() {
        check(
            VLLM_0_12,
            EngineKind::Vllm,
            &[("stop", 5.0), ("length", 1.0)],
            &[
                (Q::Running, 7.0),
                (Q::Waiting, 2.0),
                (Q::KvUsage, 0.75),
                (Q::PromptTokens, 1900.0),
                (Q::OutputTokens, 80.0),
                (Q::CachedTokens, 1100.0),
                (Q::ExternalCachedTokens, 0.0),
                (Q::CacheQueries, 30900.0),
                (Q::Preemptions, 2.0),
                (Q::Requests, 6.0),
                (Q::RequestPromptTokens, 1500.0),
                (Q::RequestOutputTokens, 60.0),
                (Q::QueueSeconds, 0.75),
                (Q::PrefillSeconds, 1.0),
                (Q::DecodeSeconds, 3.5),
                (Q::E2eSeconds, 6.0),
                (Q::TtftSeconds, 1.5),
                (Q::TtftCount, 7.0),
                (Q::TokenGapSeconds, 0.18),
                (Q::TokenGapCount, 6.0),
            ],
        );
    }

    #[test]
    fn vllm_of_old_names() {
        check(
            VLLM_0_8,
            EngineKind::Vllm,
            &[("stop", 3.0), ("length", 1.0), ("abort", 0.0)],
            &[
                (Q::Running, 3.0),
                (Q::Waiting, 1.0),
                (Q::KvUsage, 0.25),
                (Q::PromptTokens, 1000.0),
                (Q::OutputTokens, 80.0),
                (Q::CachedTokens, 640.0),
                (Q::CacheQueries, 900.0),
                (Q::Preemptions, 2.0),
                (Q::Requests, 4.0),
                (Q::RequestPromptTokens, 800.0),
                (Q::RequestOutputTokens, 60.0),
                (Q::QueueSeconds, 0.4),
                (Q::PrefillSeconds, 1.2),
                (Q::DecodeSeconds, 4.0),
                (Q::E2eSeconds, 6.0),
                (Q::TtftSeconds, 1.5),
                (Q::TtftCount, 5.0),
                (Q::TokenGapSeconds, 1.4),
                (Q::TokenGapCount, 70.0),
            ],
        );
    }

    #[test]
    fn other_engines() {
        check(
            SGLANG,
            EngineKind::Sglang,
            &[("unknown", 9.0), ("abort", 1.0)],
            &[
                (Q::Running, 3.0),
                (Q::Waiting, 5.0),
                (Q::KvUsage, 0.5),
                (Q::PromptTokens, 1000.0),
                (Q::OutputTokens, 90.0),
                (Q::CachedTokens, 600.0),
                (Q::ExternalCachedTokens, 120.0),
                (Q::Preemptions, 4.0),
                (Q::Requests, 9.0),
                (Q::RequestPromptTokens, 1000.0),
                (Q::RequestOutputTokens, 90.0),
                (Q::RequestComputedTokens, 280.0),
                (Q::QueueSeconds, 0.9),
                (Q::E2eSeconds, 9.0),
                (Q::TtftSeconds, 1.5),
                (Q::TtftCount, 9.0),
                (Q::TokenGapSeconds, 0.81),
                (Q::TokenGapCount, 81.0),
            ],
        );
        check(
            TENSORRT_LLM,
            EngineKind::TensorRtLlm,
            &[("stop", 3.0), ("length", 2.0)],
            &[
                (Q::Running, 2.0),
                (Q::Waiting, 1.0),
                (Q::KvUsage, 0.375),
                (Q::PromptTokens, 500.0),
                (Q::OutputTokens, 50.0),
                (Q::CachedTokens, 300.0),
                (Q::Requests, 5.0),
                (Q::RequestPromptTokens, 500.0),
                (Q::RequestOutputTokens, 50.0),
                (Q::RequestComputedTokens, 200.0),
                (Q::QueueSeconds, 0.5),
                (Q::PrefillSeconds, 1.5),
                (Q::DecodeSeconds, 8.0),
                (Q::E2eSeconds, 10.0),
                (Q::TtftSeconds, 2.0),
                (Q::TtftCount, 5.0),
                (Q::TokenGapSeconds, 0.1),
                (Q::TokenGapCount, 5.0),
            ],
        );
        check(
            LLAMA_CPP,
            EngineKind::LlamaCpp,
            &[],
            &[
                (Q::Running, 1.0),
                (Q::Waiting, 3.0),
                (Q::PromptTokens, 120.0),
                (Q::OutputTokens, 40.0),
                (Q::PrefillSeconds, 0.5),
                (Q::DecodeSeconds, 2.25),
            ],
        );
    }

    #[test]
    fn cached_tokens_come_from_the_most_trusted_name() {
        let by_source = "vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 10\n\
            vllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"} 5\n\
            vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 85\n";
        let cached = "vllm:prompt_tokens_cached_total 15\n";
        let external = "vllm:external_prefix_cache_hits_total 5\n";
        let hits = "vllm:prefix_cache_hits_total 400\nvllm:prefix_cache_queries_total 4000\n";
        let prompt = "vllm:prompt_tokens_total 100\n";
        for (parts, sample, local, warning) in [
            (vec![by_source, cached, hits], "prompt_tokens_by_source_total", 10.0, None),
            // Of local and external together the external part is taken off.
            (
                vec![cached, external, hits],
                "prompt_tokens_cached_total",
                10.0,
                Some("more than once"),
            ),
            (vec![cached, hits], "prefix_cache_hits_total", 400.0, Some("more than once")),
            (vec!["vllm:prefix_cache_hits_total 40\n"], "prefix_cache_hits_total", 40.0, None),
            (
                vec![by_source, "vllm:prompt_tokens_total 20\n"],
                "prompt_tokens_by_source_total",
                10.0,
                Some("add up to 100, prompt tokens are 120"),
            ),
        ] {
            let page = format!("{prompt}{}", parts.concat());
            let snapshot = Snapshot::read(&page, EngineKind::Vllm).expect("a page");
            assert_eq!(snapshot.get(Q::CachedTokens), Some(local), "{page}");
            assert_eq!(snapshot.cached_tokens_sample(), Some(format!("vllm:{sample}")), "{page}");
            let told = snapshot.cache_warning();
            assert_eq!(told.is_some(), warning.is_some(), "{page}: {told:?}");
            assert!(told.is_none_or(|told| told.contains(warning.unwrap_or_default())), "{page}");
        }
    }

    #[test]
    fn inflated_lookups_are_flagged_on_a_whole_page() {
        for (page, flagged) in [(VLLM_0_32, false), (VLLM_0_12, true), (VLLM_0_8, false)] {
            let snapshot = Snapshot::read(page, EngineKind::Vllm).expect("a page");
            assert_eq!(snapshot.cache_warning().is_some(), flagged);
        }
    }

    #[test]
    fn values_that_are_no_numbers_are_unknown() {
        let page = "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\n\
            vllm:num_requests_waiting 1\n";
        let snapshot = Snapshot::read(page, EngineKind::Vllm).expect("a page");
        assert_eq!(snapshot.get(Q::KvUsage), None);
        assert_eq!(snapshot.get(Q::Running), None);
        assert_eq!(snapshot.get(Q::Waiting), Some(1.0));
    }

    #[test]
    fn pages_of_no_engine() {
        for (page, part) in [
            ("", "0 samples"),
            ("# HELP vllm:prompt_tokens_total x\n", "0 samples"),
            ("node_load1 0.5\nnode_load5 0.5\n", "2 samples, none of them"),
            // A histogram of this name is on every page of vLLM and is no counter of tokens.
            ("vllm:iteration_tokens_total_sum 5\n", "1 samples"),
            ("<html><body>Sign in</body></html>", "line 1: the page is HTML"),
            ("{\"detail\":\"Not Found\"}", "line 1: the page is JSON"),
            (
                "vllm:prompt_tokens_total 1\nvllm:num_requests_running\n",
                "line 2: a name without a value",
            ),
        ] {
            let error = detect(page).expect_err(page).to_string();
            assert!(error.contains(part), "{page:?}: {error}");
        }
    }

    #[test]
    fn of_several_engines_the_one_with_most_samples_counts() {
        let page = format!("llamacpp:requests_processing 1\n{SGLANG}");
        assert_eq!(detect(&page), Ok(EngineKind::Sglang));
        let page = "sglang:num_running_reqs 1\nvllm:num_requests_running 1\n";
        assert_eq!(detect(page), Ok(EngineKind::Vllm));
    }
}
