//! Which tokens of our own a plan's prompts are made of, exactly as many as recorded.
//!
//! Pure. A prompt is a row of pieces, each a seed and a number of tokens; equal units, equal blocks and
//! shared prefixes are equal pieces, in whatever session they stand. There are three kinds of turns:
//! with block hashes (a piece for each block), with units (a piece for each unit: what the turn's
//! tokens leave over is shared out by bytes among the units that no earlier turn gave tokens to), and
//! with counts alone (a thread's prompt grows by a piece a turn; one that got shorter keeps what its
//! cached tokens tell; the cached tokens of a thread's first turn are common to all threads).
//! The last pieces are cut, or one of the request's own is added, so that the sum is the recorded count.

use std::collections::HashMap;

use super::plan::{Plan, PlannedRequest, SessionPlan};
use super::salts::CacheSharing;
use super::shared_prefix::PiecePlanner;
use super::tokens::{Piece, seed_of};
use crate::trace::UnitTokens;

/// The pieces of a plan, each once, and the prompts as indices of them.
#[derive(Debug, Default)]
pub struct SyntheticPrompts {
    pieces: Vec<Piece>,
    index: HashMap<(u64, u32), u32>,
    /// By session, by request.
    prompts: Vec<Vec<Vec<u32>>>,
    /// The session that a seed was first seen in, and whether another one has it too.
    owners: HashMap<u64, (usize, bool)>,
}

impl SyntheticPrompts {
    /// The prompts of a plan, whose planned prompt and cached tokens, and what they share as far as
    /// `sharing` lets them, become theirs. `unit_bytes` tells the length of a unit's text.
    pub fn of(plan: &mut Plan, sharing: CacheSharing, unit_bytes: &dyn Fn(&str) -> u64) -> Self {
        let mut prompts = Self::default();
        let bytes: Vec<u64> = plan.unit_hashes.iter().map(|hash| unit_bytes(hash)).collect();
        let seeds: Vec<u64> = plan.unit_hashes.iter().map(|hash| seed_of(hash)).collect();
        let mut units = Units { bytes, seeds, tokens: UnitTokens::new() };
        for session in &mut plan.sessions {
            let of_session = prompts.of_session(session, &mut units);
            prompts.prompts.push(of_session);
        }
        prompts.lay_into_tree(plan, sharing);
        prompts
    }

    /// What the prompts have in common; which pieces several sessions have is known now.
    fn lay_into_tree(&self, plan: &mut Plan, sharing: CacheSharing) {
        let mut planner = PiecePlanner::new(sharing);
        for (index, session) in plan.sessions.iter_mut().enumerate() {
            for (at, request) in session.requests.iter_mut().enumerate() {
                let pieces: Vec<Piece> = self.prompt(index, at).collect();
                let n_head = pieces.iter().take_while(|piece| self.is_shared(piece.seed)).count();
                request.shared_prefix = planner.add(&pieces, n_head);
            }
        }
        plan.prefixes = planner.finish();
    }

    /// Whether several sessions have pieces of this seed.
    pub fn is_shared(&self, seed: u64) -> bool {
        self.owners.get(&seed).is_some_and(|(_, shared)| *shared)
    }

    /// The pieces of one prompt.
    pub fn prompt(&self, session: usize, request: usize) -> impl Iterator<Item = Piece> {
        self.prompts[session][request].iter().map(|piece| self.pieces[*piece as usize])
    }

    fn of_session(&mut self, session: &mut SessionPlan, units: &mut Units) -> Vec<Vec<u32>> {
        let mut prompts: Vec<Vec<u32>> = Vec::with_capacity(session.requests.len());
        for thread in &session.threads {
            let mut before: Vec<Piece> = Vec::new();
            for at in thread.requests.clone() {
                let request = &mut session.requests[at];
                let own = seed_of(&format!(
                    "{}/{}/{}",
                    session.session_id, thread.thread_id, request.turn
                ));
                let mut pieces = match request.block_size {
                    Some(size) => blocks(request, size, units),
                    None if !request.units.is_empty() => units.pieces(request),
                    None => counts(request, &before, own, at == thread.requests.start),
                };
                if let Some(tokens) = request.planned_prompt_tokens {
                    fit(&mut pieces, tokens, own);
                }
                request.planned_prompt_tokens = Some(total(&pieces));
                request.planned_cached_tokens = Some(n_common(&before, &pieces));
                prompts.push(pieces.iter().map(|piece| self.intern(*piece)).collect());
                before = pieces;
            }
        }
        prompts
    }

    fn intern(&mut self, piece: Piece) -> u32 {
        let session = self.prompts.len();
        let owner = self.owners.entry(piece.seed).or_insert((session, false));
        owner.1 |= owner.0 != session;
        *self.index.entry((piece.seed, piece.tokens)).or_insert_with(|| {
            self.pieces.push(piece);
            self.pieces.len() as u32 - 1
        })
    }
}

/// What is known of the recording's units.
struct Units {
    bytes: Vec<u64>,
    seeds: Vec<u64>,
    tokens: UnitTokens<u32>,
}

impl Units {
    /// A piece for each unit of a turn.
    fn pieces(&mut self, request: &PlannedRequest) -> Vec<Piece> {
        let bytes = |unit: u32| self.bytes[unit as usize];
        let tokens = self.tokens.of_prompt(&request.units, request.planned_prompt_tokens, bytes);
        let seeds = request.units.iter().map(|unit| self.seeds[*unit as usize]);
        seeds.zip(tokens).map(|(seed, tokens)| Piece { seed, tokens }).collect()
    }
}

/// A piece for each block of a turn.
fn blocks(request: &PlannedRequest, size: u32, units: &Units) -> Vec<Piece> {
    let piece = |unit: &u32| Piece { seed: units.seeds[*unit as usize], tokens: size };
    request.units.iter().map(piece).collect()
}

/// A prompt of which only the length is known, in a thread whose last prompt was `before`.
fn counts(request: &PlannedRequest, before: &[Piece], own: u64, is_first: bool) -> Vec<Piece> {
    let tokens = request.planned_prompt_tokens.unwrap_or_default();
    let cached = request.recorded_cached_tokens.unwrap_or_default().min(tokens);
    if is_first {
        let mut pieces = Vec::new();
        push(&mut pieces, seed_of("common to all threads"), cached);
        push(&mut pieces, own, tokens - cached);
        return pieces;
    }
    let mut pieces = before.to_vec();
    let shared = if tokens >= total(before) { total(before) } else { cached.min(total(before)) };
    cut(&mut pieces, shared);
    push(&mut pieces, own, tokens - shared);
    pieces
}

fn push(pieces: &mut Vec<Piece>, seed: u64, tokens: u64) {
    if tokens > 0 {
        pieces.push(Piece { seed, tokens: tokens.min(u64::from(u32::MAX)) as u32 });
    }
}

fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.tokens)).sum()
}

/// Keeps the first `tokens` tokens.
fn cut(pieces: &mut Vec<Piece>, tokens: u64) {
    let mut left = tokens;
    for piece in &mut *pieces {
        piece.tokens = u64::from(piece.tokens).min(left) as u32;
        left -= u64::from(piece.tokens);
    }
    pieces.retain(|piece| piece.tokens > 0);
}

/// Cuts a prompt, or adds to it what is the request's own, so that it has so many tokens.
fn fit(pieces: &mut Vec<Piece>, tokens: u64, own: u64) {
    cut(pieces, tokens);
    let missing = tokens - total(pieces);
    push(pieces, own, missing);
}

/// Tokens with which both begin, as the pieces tell.
fn n_common(a: &[Piece], b: &[Piece]) -> u64 {
    let mut common = 0;
    for (a, b) in a.iter().zip(b) {
        if a.seed != b.seed {
            break;
        }
        common += u64::from(a.tokens.min(b.tokens));
        if a.tokens != b.tokens {
            break;
        }
    }
    common
}

#[cfg(test)]
#[path = "synthetic_plan_tests.rs"]
mod tests;
