//! Lines that come in any order and stand in an export by time.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::out_file::{OutFile, json};

/// They lie in a scratch file until the end: what is held is where each begins.
pub(super) struct SortedLines {
    file: OutFile,
    scratch: Scratch,
    /// When, where and how long.
    places: Vec<(f64, u64, usize)>,
    end: u64,
}

/// A file that is gone once it is dropped.
struct Scratch {
    writer: BufWriter<File>,
    path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is a hidden file beside the export: no reason to fail.
        let _ = fs::remove_file(&self.path);
    }
}

impl SortedLines {
    pub(super) fn create(out: &Path) -> Result<Self> {
        let file = OutFile::create(out)?;
        let mut path = file.partial().to_owned().into_os_string();
        path.push(".lines");
        let path = PathBuf::from(path);
        let mut options = File::options();
        let options = options.create(true).truncate(true).read(true).write(true);
        let opened = options.open(&path).map_err(|error| Error::io(&path, error))?;
        let scratch = Scratch { writer: BufWriter::new(opened), path };
        Ok(Self { file, scratch, places: Vec::new(), end: 0 })
    }

    /// Keeps a line. Those of one time stay in the order in which they came.
    pub(super) fn line(&mut self, time: f64, line: &impl Serialize) -> Result<()> {
        let mut text = json(line)?;
        text.push(b'\n');
        let kept = self.scratch.writer.write_all(&text);
        kept.map_err(|error| Error::io(&self.scratch.path, error))?;
        self.places.push((time, self.end, text.len()));
        self.end += text.len() as u64;
        Ok(())
    }

    /// Writes them; gives the bytes of the file's text.
    pub(super) fn publish(mut self) -> Result<u64> {
        self.places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Self { mut file, mut scratch, places, .. } = self;
        let unreadable = |error| Error::io(&scratch.path, error);
        scratch.writer.flush().map_err(unreadable)?;
        let mut reader = BufReader::new(scratch.writer.get_ref());
        reader.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let (mut at, mut text) = (0_u64, Vec::new());
        for (_, start, length) in places {
            text.resize(length, 0);
            // Most lines follow on the one before, which keeps what was read ahead.
            let moved = reader.seek_relative(start.cast_signed() - at.cast_signed());
            moved.and_then(|()| reader.read_exact(&mut text)).map_err(unreadable)?;
            file.write(&text)?;
            at = start + length as u64;
        }
        file.publish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn lines_stand_by_time_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep/rows.jsonl");
        let mut lines = SortedLines::create(&out).unwrap();
        for (time, line) in [(2.0, 1), (1.0, 22), (2.0, 333), (0.5, 4444)] {
            lines.line(time, &line).unwrap();
        }
        assert_eq!(lines.publish().unwrap(), 14);
        assert_eq!(fs::read_to_string(&out).unwrap(), "4444\n22\n1\n333\n");
        assert_eq!(names(out.parent().unwrap()), ["rows.jsonl"]);
    }

    #[test]
    fn lines_that_are_not_published_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = SortedLines::create(&folder.path().join("b")).unwrap();
        lines.line(1.0, &1).unwrap();
        drop(lines);
        assert!(names(folder.path()).is_empty());
    }
}
