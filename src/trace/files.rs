//! Files of a run directory: private to the user, replaced whole or not at all, and what is said when
//! the file system refuses.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A refusal while a run directory is written, with the remedy.
pub(super) fn write_error(path: &Path, source: &std::io::Error) -> Error {
    let remedy = match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "; free some space, or choose another output directory"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            "; choose an output directory that you may write to"
        }
        _ => "",
    };
    Error::trace(path, format!("cannot write: {source}{remedy}"))
}

/// A refusal while a run directory is read, with the remedy.
pub(super) fn read_error(path: &Path, source: &std::io::Error) -> Error {
    let remedy = match source.kind() {
        ErrorKind::PermissionDenied => "; it belongs to another user",
        _ => "",
    };
    Error::trace(path, format!("cannot read: {source}{remedy}"))
}

/// A new file that only its user may read; an old one of that name is emptied.
pub(super) fn create_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// A file that only its user may read, for appending.
pub(super) fn append_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The name under which a file is written before it takes its place.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Replaces a file whole: readers see the old bytes or the new ones.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = temporary(path);
    let written = create_private(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Replaces a file of a run directory whole, with what is said when that is refused.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes).map_err(|error| write_error(path, &error))
}

/// Makes the names in a directory last through a power cut; file systems that cannot are left alone.
pub(super) fn sync_directory(dir: &Path) {
    let _ = File::open(dir).and_then(|handle| handle.sync_all());
}

/// Makes a directory for a run, or takes an empty one. Returns the directories that were made,
/// outermost first, so that a caller that fails can take them away again.
pub(super) fn claim_directory(dir: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::config(format!(
                    "{}: the output directory exists and is not empty; choose another or remove it",
                    dir.display()
                )));
            }
            return Ok(Vec::new());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(Error::config(format!(
                "{}: not a directory; choose another output directory",
                dir.display()
            )));
        }
        Err(error) => return Err(write_error(dir, &error)),
    }
    let mut missing: Vec<PathBuf> = dir
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_path_buf)
        .collect();
    missing.reverse();
    for (made, path) in missing.iter().enumerate() {
        if let Err(error) = DirBuilder::new().mode(0o700).create(path) {
            unclaim(&missing[..made]);
            return Err(write_error(path, &error));
        }
    }
    Ok(missing)
}

/// Takes away directories that `claim_directory` made, as far as they are empty.
pub(super) fn unclaim(made: &[PathBuf]) {
    for path in made.iter().rev() {
        let _ = std::fs::remove_dir(path);
    }
}
