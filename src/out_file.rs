//! A file that is made for others: written beside its place, gzip where its name ends in `.gz`, and put there
//! when it is whole. Dropped unpublished, it is removed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::error::{Error, Result};

/// A file being made.
pub(crate) struct OutFile {
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
    pub(crate) fn create(out: &Path) -> Result<Self> {
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

    /// Where it lies until then.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Writes as it stands.
    pub(crate) fn write(&mut self, text: &[u8]) -> Result<()> {
        self.bytes += text.len() as u64;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write_all(text).map_err(|error| Error::io(&self.partial, error))
    }

    /// Writes a line of JSON.
    pub(crate) fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = json(line)?;
        text.push(b'\n');
        self.write(&text)
    }

    /// Puts the file into its place; gives the bytes of its text.
    pub(crate) fn publish(mut self) -> Result<u64> {
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
pub(crate) fn json(row: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(row)
        .map_err(|error| Error::Internal(format!("a row that is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_file_that_is_there_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a");
        fs::write(&out, "mine").unwrap();
        let error = OutFile::create(&out).err().unwrap().to_string();
        assert!(error.ends_with("is there already; choose another file, or remove it"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_published_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OutFile::create(&folder.path().join("a")).unwrap();
        file.line(&1).unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
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
