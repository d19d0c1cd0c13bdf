//! One metrics page read through the catalog: totals and gauges at one moment.
//!
//! Pure. Series that differ only in labels (data-parallel engines, ranks) are summed, never the first
//! taken; of the KV-cache gauges the fullest counts. What two snapshots say about the requests between
//! them is `delta`'s.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::catalog::{EngineKind, Pick, Quantity, Source};
use super::scrape::{self, ParseError, Sample};

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
}

/// What a sample name feeds.
#[derive(Debug, Clone, Copy)]
enum Target {
    Source { place: usize, pick: Pick, quantity: Quantity },
    Finished { place: usize },
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
    let known =
        |name: &str| EngineKind::ALL.into_iter().find(|kind| Index::of(*kind).find(name).is_some());
    let samples = scrape::scan(page, known, |kind, _| counts[kind as usize].0 += 1)?;
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
        Self { kind, values, finished: BTreeMap::new() }
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
