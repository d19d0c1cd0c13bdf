//! The files of an export: a folder that appears whole or not at all, and a bounded number of open
//! files however many sessions there are.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::netpreme::UNASSIGNED;
use crate::api::ContentHash;
use crate::error::{Error, Result};

/// Most files held open; a run of more sessions opens them again.
const MOST_OPEN: usize = 64;
/// Longest part of a session's id that its folder's name keeps.
const LONGEST_NAME: usize = 100;

/// A folder being made beside the place where it will be. Dropped unpublished, it is removed.
#[derive(Debug)]
pub(super) struct Folder {
    out: PathBuf,
    partial: PathBuf,
    published: bool,
}

impl Folder {
    pub(super) fn create(out: &Path) -> Result<Self> {
        match fs::read_dir(out) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Error::config(format!(
                        "{}: is not empty; choose another folder, or empty it",
                        out.display()
                    )));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(out, error)),
        }
        let name = out
            .file_name()
            .ok_or_else(|| Error::config(format!("{}: does not name a folder", out.display())))?;
        let partial = out.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        // What an export that was killed has left.
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|error| Error::io(&partial, error))?;
        }
        fs::create_dir_all(&partial).map_err(|error| Error::io(&partial, error))?;
        Ok(Self { out: out.to_path_buf(), partial, published: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.partial
    }

    /// Puts the folder into its place.
    pub(super) fn publish(mut self) -> Result<()> {
        if self.out.exists() {
            fs::remove_dir(&self.out).map_err(|error| Error::io(&self.out, error))?;
        }
        fs::rename(&self.partial, &self.out).map_err(|error| Error::io(&self.out, error))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.published {
            // The error that led here is the one to tell.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// The files below `runs/`, appended to in any order.
#[derive(Debug)]
pub(super) struct SessionFiles {
    root: PathBuf,
    open: HashMap<PathBuf, BufWriter<File>>,
    bytes: u64,
}

impl SessionFiles {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), open: HashMap::new(), bytes: 0 }
    }

    /// Appends a line of JSON to a session's file.
    pub(super) fn append(
        &mut self,
        session: &str,
        file: &str,
        line: &impl Serialize,
    ) -> Result<()> {
        self.append_to(&self.path(&folder_name(session), file), line)
    }

    /// Appends a line to a file that belongs to no session.
    pub(super) fn append_unassigned(&mut self, file: &str, line: &impl Serialize) -> Result<()> {
        self.append_to(&self.path(UNASSIGNED, file), line)
    }

    /// Makes a session's file if it is not there.
    pub(super) fn touch(&mut self, session: &str, file: &str) -> Result<()> {
        let path = self.path(&folder_name(session), file);
        self.writer(&path).map(|_| ())
    }

    /// Writes a file at the top.
    pub(super) fn write_root(&mut self, file: &str, content: &impl Serialize) -> Result<()> {
        let path = self.root.join(file);
        let mut text = serde_json::to_vec_pretty(content).map_err(|error| not_json(&error))?;
        text.push(b'\n');
        self.bytes += text.len() as u64;
        fs::write(&path, text).map_err(|error| Error::io(&path, error))
    }

    /// Brings everything to the disk; gives the bytes written.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.close_all()?;
        Ok(self.bytes)
    }

    fn path(&self, folder: &str, file: &str) -> PathBuf {
        self.root.join("runs").join(folder).join(file)
    }

    fn append_to(&mut self, path: &Path, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| not_json(&error))?;
        text.push(b'\n');
        self.bytes += text.len() as u64;
        self.writer(path)?.write_all(&text).map_err(|error| Error::io(path, error))
    }

    fn writer(&mut self, path: &Path) -> Result<&mut BufWriter<File>> {
        if !self.open.contains_key(path) && self.open.len() >= MOST_OPEN {
            self.close_all()?;
        }
        match self.open.entry(path.to_path_buf()) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let folder = path.parent().unwrap_or(path);
                fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
                let file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)
                    .map_err(|error| Error::io(path, error))?;
                Ok(entry.insert(BufWriter::new(file)))
            }
        }
    }

    fn close_all(&mut self) -> Result<()> {
        for (path, mut writer) in self.open.drain() {
            writer.flush().map_err(|error| Error::io(&path, error))?;
        }
        Ok(())
    }
}

fn not_json(error: &serde_json::Error) -> Error {
    Error::Internal(format!("a row that is not JSON: {error}"))
}

/// A session's id as a folder name: letters, digits, `.`, `_` and `-` stay. An id that has anything
/// else, starts with a dot or an underscore or is too long gets a part of its hash, so that two ids
/// never share a folder and none leads out of it.
pub(super) fn folder_name(session: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let first = session.chars().next();
    let safe = session.chars().all(plain)
        && first.is_some_and(|letter| letter.is_ascii_alphanumeric())
        && session.len() <= LONGEST_NAME;
    if safe {
        return session.to_owned();
    }
    let letters = session.chars().map(|letter| if plain(letter) { letter } else { '_' });
    let kept: String = letters.take(LONGEST_NAME).collect();
    let hash = ContentHash::of(session.as_bytes()).hex();
    format!("{}~{}", kept.trim_start_matches(['.', '_']), &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_stay_in_their_folder_and_apart() {
        for plain in ["s1", "7d0f2c1e-aaaa-4b", "synthetic-00001", "a.b_c"] {
            assert_eq!(folder_name(plain), plain);
        }
        let odd = [
            "",
            ".",
            "..",
            "../../etc",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "a b",
            "_unassigned",
            "é",
            "a_b\0",
        ];
        let long = "x".repeat(5000);
        let mut names: Vec<String> =
            odd.iter().copied().chain([long.as_str()]).map(folder_name).collect();
        for name in &names {
            assert!(name.contains('~') && name.len() <= LONGEST_NAME + 9, "{name}");
            assert!(!name.contains(['/', '\\', '\0']) && !name.starts_with('.'), "{name}");
            assert!(name.is_ascii() && name != UNASSIGNED);
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn more_sessions_than_open_files_lose_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = SessionFiles::new(dir.path());
        for line in 0..3 {
            for session in 0..200 {
                files.append(&format!("s{session}"), "a.jsonl", &line).unwrap();
            }
        }
        assert!(files.open.len() <= MOST_OPEN);
        assert_eq!(files.finish().unwrap(), 3 * 200 * 2);
        for session in 0..200 {
            let path = dir.path().join(format!("runs/s{session}/a.jsonl"));
            assert_eq!(fs::read_to_string(path).unwrap(), "0\n1\n2\n");
        }
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/out");
        drop(Folder::create(&out).unwrap());
        assert!(!out.exists() && fs::read_dir(dir.path().join("deep")).unwrap().next().is_none());
        fs::create_dir(&out).unwrap();
        let folder = Folder::create(&out).unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        assert!(fs::read_dir(&out).unwrap().next().is_none());
        folder.publish().unwrap();
        assert_eq!(fs::read_to_string(out.join("a")).unwrap(), "1");
        let error = Folder::create(&out).unwrap_err().to_string();
        assert!(error.ends_with("is not empty; choose another folder, or empty it"), "{error}");
        let error = Folder::create(&out.join("a")).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
}
