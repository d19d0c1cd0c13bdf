//! An import that is there already: which of the sources it lacks, and what of it stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::parallel;
use super::rows::RowMaker;
use super::sources::{Piece, absolute};
use super::state::{Known, State};
use super::update::{Change, Decision, Now, change, decide, is_reason};
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::trace::record::TurnRow;
use crate::trace::{Manifest, Run, RunKind, Table};

const BUFFER: usize = 1 << 18;
const REMEDY: &str =
    "; what it was imported as stays. Import it into a new directory to have it as it is now";

/// Of each table the rows that stay.
pub(super) type Kept = BTreeMap<Table, Vec<Range<u64>>>;

/// The run and what it was made of.
pub(super) struct Existing {
    pub(super) manifest: Manifest,
    pub(super) state: State,
    run: Run,
    /// Keys of pieces that are read in place of what they came to.
    replaced: HashSet<String>,
}

impl Existing {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let run = Run::open(dir)?;
        let manifest = run.manifest().clone();
        if manifest.kind != RunKind::Import {
            return Err(Error::config(format!(
                "{}: not an import but another kind of run; choose another directory",
                dir.display()
            )));
        }
        if manifest.partial || !manifest.complete {
            return Err(Error::config(format!(
                "{}: an update of it was cut off; import everything into a new directory",
                dir.display()
            )));
        }
        Ok(Self { manifest, state: State::load(dir)?, run, replaced: HashSet::new() })
    }

    /// Leaves those pieces that are to be read, and says which cannot be.
    pub(super) fn reduce(
        &mut self,
        pieces: &mut Vec<Piece>,
        threads: usize,
    ) -> Result<Vec<String>> {
        let known: HashMap<&str, &Known> =
            self.state.pieces.iter().map(|piece| (piece.key.as_str(), piece)).collect();
        let mut decided = Vec::new();
        parallel::in_order(
            pieces.iter(),
            threads,
            |piece| look(piece, &known),
            |looked| {
                decided.push(looked);
                true
            },
        );
        let decided = decided.into_iter().collect::<Result<Vec<(String, Decision, String)>>>()?;
        let mut read: HashSet<String> = HashSet::new();
        let mut refused = Vec::new();
        for (key, decision, told) in &decided {
            match decision {
                Decision::Read => drop(read.insert(key.clone())),
                Decision::Refuse(what) => refused.push(format!("{told} {what}{REMEDY}")),
                Decision::Keep => {}
            }
        }
        let keys: Vec<String> = decided.into_iter().map(|(key, _, _)| key).collect();
        self.with_shared_threads(&mut read, &keys, &mut refused)?;
        self.replaced =
            read.iter().filter(|key| known.contains_key(key.as_str())).cloned().collect();
        let mut keys = keys.iter();
        pieces.retain(|_| keys.next().is_some_and(|key| read.contains(key)));
        Ok(refused)
    }

    /// Turns of one conversation may lie in several pieces: then they are read together, or not at all.
    fn with_shared_threads(
        &self,
        read: &mut HashSet<String>,
        found: &[String],
        refused: &mut Vec<String>,
    ) -> Result<()> {
        let is_known = |key: &String| self.state.pieces.iter().any(|piece| piece.key == *key);
        if !read.iter().any(is_known) {
            return Ok(());
        }
        let mut threads: HashMap<String, HashSet<usize>> = HashMap::new();
        let turns = self.run.rows_of_columns::<TurnRow>(&["thread_id"])?;
        for (turn, piece) in turns.zip(self.state.piece_of_turns()) {
            threads.entry(turn?.thread_id).or_default().insert(piece);
        }
        let groups: Vec<HashSet<usize>> =
            threads.into_values().filter(|pieces| pieces.len() > 1).collect();
        let key = |piece: &usize| &self.state.pieces[*piece].key;
        loop {
            let group = groups.iter().find(|group| {
                let n = group.iter().filter(|piece| read.contains(key(piece))).count();
                n > 0 && n < group.len()
            });
            let Some(group) = group else { return Ok(()) };
            let lost = group.iter().map(key).find(|key| !found.contains(key));
            for piece in group {
                match lost {
                    None => drop(read.insert(key(piece).clone())),
                    Some(lost) if read.remove(key(piece)) => refused.push(format!(
                        "{} has more, but shares a conversation with {lost}, which is not among the \
                         sources{REMEDY}",
                        key(piece)
                    )),
                    Some(_) => {}
                }
            }
        }
    }

    /// The rows that stay, and a maker of rows that knows them. What is replaced is forgotten.
    pub(super) fn keep(&mut self, run_id: &str) -> Result<(RowMaker, Kept)> {
        let replaced = &self.replaced;
        let mut kept = self.state.keep(|piece| !replaced.contains(&piece.key));
        kept.insert(Table::Units, whole(self.run.row_count(Table::Units)));
        let mut maker = RowMaker::new(run_id);
        let columns = [
            "session_id",
            "thread_id",
            "turn",
            "request_id",
            "agent",
            "response_end_time",
            "unit_hashes",
        ];
        let mut ranges = kept[&Table::Turns].iter().peekable();
        for (index, turn) in (0..).zip(self.run.rows_of_columns::<TurnRow>(&columns)?) {
            while ranges.next_if(|range| range.end <= index).is_some() {}
            let turn = turn?;
            if ranges.peek().is_some_and(|range| range.contains(&index)) {
                maker.remember(&turn);
            }
        }
        Ok((maker, kept))
    }
}

#[allow(clippy::single_range_in_vec_init)]
fn whole(rows: u64) -> Vec<Range<u64>> {
    vec![0..rows]
}

/// What is to be done with a piece: its key, the decision, and the file that is the reason.
fn look(piece: &Piece, known: &HashMap<&str, &Known>) -> Result<(String, Decision, String)> {
    let key = piece.key();
    let Some(known) = known.get(key.as_str()) else {
        return Ok((key, Decision::Read, String::new()));
    };
    let mut changes = Vec::new();
    let files: Vec<_> = piece.files().iter().map(|path| absolute(path)).collect();
    for path in &files {
        let part = known.files.iter().find(|part| part.path == *path);
        let now = part.map(|part| now(path, part.bytes)).transpose()?;
        changes.push((path.clone(), change(part, now.as_ref())));
    }
    for part in &known.files {
        if !files.contains(&part.path) {
            changes.push((part.path.clone(), Change::Gone));
        }
    }
    let all: Vec<Change> = changes.iter().map(|(_, change)| *change).collect();
    let decision = decide(&all, piece.format().is_rewritten());
    let reason = changes.iter().find(|(_, change)| is_reason(*change, &decision));
    let told = reason.map(|(path, _)| path.display().to_string()).unwrap_or_default();
    Ok((key, decision, told))
}

/// A file as it is, with the hash of its first bytes.
fn now(path: &Path, bytes: u64) -> Result<Now> {
    let refused = |error| Error::io(path, error);
    let file = File::open(path).map_err(refused)?;
    let size = file.metadata().map_err(refused)?.len();
    let mut first = file.take(bytes);
    let (mut hash, mut buffer, mut read) = (Sha256::new(), vec![0; BUFFER], 0);
    loop {
        let n = first.read(&mut buffer).map_err(refused)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        read += n as u64;
    }
    Ok(Now { bytes: size, sha256: (read == bytes).then(|| hex(&hash.finalize())) })
}
