//! A file's lines with their numbers: plain or gzip, bounded in memory, read as far as they go.
//!
//! What cannot be read (a line too long, bytes that are no UTF-8, a gzip stream that breaks off) is told
//! beside the lines and never ends an import.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::problems::Problems;
use crate::error::{Error, Result};
use crate::hex::hex;

/// A longer line is left out: no agent's record comes near it.
pub(super) const LONGEST_LINE: usize = 64 << 20;
const BUFFER: usize = 1 << 18;
const PEEK_BUFFER: usize = 1 << 14;

/// How much of a file was read, and what that was.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Arc<Mutex<(u64, Sha256)>>);

impl Tally {
    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The hash of these, in hex.
    pub(super) fn hash(&self) -> String {
        let hash = self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        hex(&hash.finalize())
    }

    /// Tallies a file that something else reads.
    pub(super) fn whole_file(&self, path: &Path) -> Result<()> {
        let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match file.read(&mut buffer).map_err(|error| Error::io(path, error))? {
                0 => return Ok(()),
                n => self.add(&buffer[..n]),
            }
        }
    }

    fn add(&self, bytes: &[u8]) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.0 += bytes.len() as u64;
        tally.1.update(bytes);
    }
}

/// A file that tallies what is read of it.
struct Tallied {
    file: File,
    tally: Tally,
}

impl Read for Tallied {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.tally.add(&buffer[..n]);
        Ok(n)
    }
}

/// Reads a file line by line.
pub(super) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    number: u64,
    buffer: Vec<u8>,
    /// It broke off: an error is told once.
    has_ended: bool,
}

impl Lines {
    /// Opens a file; gzip is told by its first bytes, not by its name.
    pub(super) fn open(path: &Path, tally: &Tally) -> Result<Self> {
        let reader = open_tallied(path, BUFFER, tally)?;
        Ok(Self { path: path.to_owned(), reader, number: 0, buffer: Vec::new(), has_ended: false })
    }

    /// The same for who wants the first lines only.
    pub(super) fn peek(path: &Path) -> Result<Self> {
        let reader = open_tallied(path, PEEK_BUFFER, &Tally::default())?;
        Ok(Self { path: path.to_owned(), reader, number: 0, buffer: Vec::new(), has_ended: false })
    }

    /// The next line that is text and not blank, with its number from 1; without its line end.
    pub(super) fn next(&mut self, problems: &mut Problems) -> Option<(u64, &str)> {
        loop {
            self.buffer.clear();
            let read = self.read_line(problems)?;
            self.number += 1;
            if !read {
                continue;
            }
            while self.buffer.last().is_some_and(u8::is_ascii_whitespace) {
                self.buffer.pop();
            }
            if self.buffer.is_empty() {
                continue;
            }
            if std::str::from_utf8(&self.buffer).is_ok() {
                break;
            }
            problems.add("not UTF-8", &self.path, self.number, "not UTF-8");
        }
        let text = std::str::from_utf8(&self.buffer).unwrap_or_default();
        // A byte-order mark may open a file.
        Some((self.number, text.trim_start_matches('\u{feff}')))
    }

    /// Fills the buffer with the next line; false for one that is too long, none at the end.
    fn read_line(&mut self, problems: &mut Problems) -> Option<bool> {
        if self.has_ended {
            return None;
        }
        let mut limited = (&mut self.reader).take(LONGEST_LINE as u64);
        match limited.read_until(b'\n', &mut self.buffer) {
            Ok(0) => None,
            Ok(n) if n == LONGEST_LINE && self.buffer.last() != Some(&b'\n') => {
                let what = format!("longer than {} MB", LONGEST_LINE >> 20);
                problems.add("line too long", &self.path, self.number + 1, what);
                self.buffer.clear();
                self.skip_line();
                Some(false)
            }
            Ok(_) => Some(true),
            Err(error) => {
                self.has_ended = true;
                let what = format!("the file breaks off here: {error}");
                problems.add("file breaks off", &self.path, self.number + 1, what);
                None
            }
        }
    }

    /// Reads past the rest of a line. An error shows again at the next read.
    fn skip_line(&mut self) {
        while let Ok(buffer) = self.reader.fill_buf() {
            if buffer.is_empty() {
                return;
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let n = end.map_or(buffer.len(), |at| at + 1);
            self.reader.consume(n);
            if end.is_some() {
                return;
            }
        }
    }
}

/// A file's text, gzip undone.
pub(super) fn open_tallied(
    path: &Path,
    buffer_bytes: usize,
    tally: &Tally,
) -> Result<Box<dyn BufRead + Send>> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let tallied = Tallied { file, tally: tally.clone() };
    let mut reader = BufReader::with_capacity(buffer_bytes, tallied);
    let is_gzip =
        reader.fill_buf().map_err(|error| Error::io(path, error))?.starts_with(&[0x1f, 0x8b]);
    if is_gzip {
        return Ok(Box::new(BufReader::with_capacity(buffer_bytes, MultiGzDecoder::new(reader))));
    }
    Ok(Box::new(reader))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read(bytes: &[u8]) -> (Vec<(u64, String)>, Problems) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let mut problems = Problems::default();
        let mut lines = Lines::open(&path, &Tally::default()).unwrap();
        let mut found = Vec::new();
        while let Some((number, line)) = lines.next(&mut problems) {
            found.push((number, line.to_owned()));
        }
        (found, problems)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_keep_their_numbers_whatever_lies_between() {
        let long = vec![b'x'; LONGEST_LINE + 10];
        let mut text = b"\xef\xbb\xbfone\r\n\n  \n\xff\xfe\n".to_vec();
        text.extend_from_slice(&long);
        text.extend_from_slice(b"\nsix\nseven");
        let (lines, problems) = read(&text);
        let expected = [(1, "one"), (6, "six"), (7, "seven")];
        assert_eq!(lines, expected.map(|(number, line)| (number, line.to_owned())));
        let places: Vec<_> = problems.listed().iter().map(|p| (p.line, p.what.as_str())).collect();
        assert_eq!(places, [(4, "not UTF-8"), (5, "longer than 64 MB")]);
    }

    #[test]
    fn a_gzip_file_is_read_as_far_as_it_goes() {
        let mut whole = gzip(b"one\ntwo\n");
        whole.extend(gzip(b"three\n"));
        assert_eq!(read(&whole).0.len(), 3, "members one after another");
        let text: Vec<String> = (0..20_000).map(|n| format!("line {n} {}", n * 7919)).collect();
        let text = text.join("\n");
        let cut = gzip(text.as_bytes());
        let (lines, problems) = read(&cut[..cut.len() / 2]);
        assert!(lines.len() > 1_000, "{}", lines.len());
        assert_eq!(lines[17].1, "line 17 134623");
        assert_eq!(problems.total(), 1);
        assert_eq!(problems.counts()["file breaks off"], 1);
    }
}
