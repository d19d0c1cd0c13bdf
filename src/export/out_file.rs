//! An export of one file: written beside its place, gzip where its name ends in `.gz`, and put there when
//! it is whole. Dropped unpublished, it is removed.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::error::{Error, Result};

/// A file being made.
pub(super) struct OutFile {
    out: PathBuf,
    partial: PathBuf,
    writer: Option<Box<dyn Finish>>,
    bytes: u64,
    published: bool,
}

/// A writer that has something to write in the end.
trait Finish: Write + Send {
    fn finish(self: Box<Self>) -> std::io::Result<()>;
}

impl Finish for BufWriter<File> {
    fn finish(mut self: Box<Self>) -> std::io::Result<()> {
        self.flush()
    }
}

impl Finish for GzEncoder<BufWriter<File>> {
    fn finish(self: Box<Self>) -> std::io::Result<()> {
        GzEncoder::finish(*self)?.flush()
    }
}

impl OutFile {
    pub(super) fn create(out: &Path) -> Result<Self> {
        if out.exists() {
            return Err(Error::config(format!(
                "{}: is there already; choose another file, or remove it",
                out.display()
            )));
        }
        let name = out
            .file_name()
            .ok_or_else(|| Error::config(format!("{}: does not name a file", out.display())))?;
        if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        let partial = out.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        let file = File::create(&partial).map_err(|error| Error::io(&partial, error))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        let writer: Box<dyn Finish> = if out.extension().is_some_and(|end| end == "gz") {
            Box::new(GzEncoder::new(file, Compression::default()))
        } else {
            Box::new(file)
        };
        let out = out.to_path_buf();
        Ok(Self { out, partial, writer: Some(writer), bytes: 0, published: false })
    }

    /// Writes as it stands.
    pub(super) fn write(&mut self, text: &[u8]) -> Result<()> {
        self.bytes += text.len() as u64;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write_all(text).map_err(|error| Error::io(&self.partial, error))
    }

    /// Writes a line of JSON.
    pub(super) fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = json(line)?;
        text.push(b'\n');
        self.write(&text)
    }

    /// Puts the file into its place; gives the bytes of its text.
    pub(super) fn publish(mut self) -> Result<u64> {
        if let Some(writer) = self.writer.take() {
            writer.finish().map_err(|error| Error::io(&self.partial, error))?;
        }
        fs::rename(&self.partial, &self.out).map_err(|error| Error::io(&self.out, error))?;
        self.published = true;
        Ok(self.bytes)
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.published {
            // The error that led here is the one to tell.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A row as JSON text.
pub(super) fn json(row: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(row)
        .map_err(|error| Error::Internal(format!("a row that is not JSON: {error}")))
}

/// Lines that come in any order and stand in the file by time. They lie in a scratch file until then: what
/// is held is where each begins.
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
        let mut path = file.partial.clone().into_os_string();
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
        let error = OutFile::create(&out).err().unwrap().to_string();
        assert!(error.ends_with("is there already; choose another file, or remove it"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_published_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OutFile::create(&folder.path().join("a")).unwrap();
        file.line(&1).unwrap();
        drop(file);
        let mut lines = SortedLines::create(&folder.path().join("b")).unwrap();
        lines.line(1.0, &1).unwrap();
        drop(lines);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_name_that_ends_in_gz_is_a_gzip_file() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a.jsonl.gz");
        let mut file = OutFile::create(&out).unwrap();
        file.line(&"x").unwrap();
        assert_eq!(file.publish().unwrap(), 4);
        let mut text = String::new();
        let packed = File::open(&out).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "\"x\"\n");
    }
}
