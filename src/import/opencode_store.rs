//! Where `OpenCode` keeps its sessions: a database, earlier folders of small files. Each session comes in the
//! form of an export, one after another, so that no more than one is held.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::result::Result as Outcome;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::head::Container;
use crate::error::{Error, Result};

/// So many generations of subagents are followed at most.
const MOST_GENERATIONS: usize = 64;

/// A session as it was kept.
pub(super) struct Told {
    /// In the form of an export; where there is none, why.
    pub(super) session: Outcome<String, String>,
    /// What of it could not be read, a sentence each.
    pub(super) left_out: Vec<String>,
}

/// Sessions one after another.
pub(super) enum Sessions {
    /// Of a database: its connection, ids that are left, parents by id.
    Database(Connection, std::vec::IntoIter<String>, HashMap<String, String>),
    /// Of a folder: one session's file.
    Folder(Option<PathBuf>),
}

impl Sessions {
    pub(super) fn open(path: &Path, container: Container) -> Result<Self> {
        if container == Container::Storage {
            return Ok(Self::Folder(Some(path.to_owned())));
        }
        let refused = |error: rusqlite::Error| {
            Error::trace(
                path,
                format!("not a database of OpenCode ({error}); name its opencode.db"),
            )
        };
        let connection = connect(path).map_err(refused)?;
        let rows = sessions(&connection).map_err(refused)?;
        let parents =
            rows.iter().filter_map(|(id, parent)| Some((id.clone(), parent.clone()?))).collect();
        let ids: Vec<String> = rows.into_iter().map(|(id, _)| id).collect();
        Ok(Self::Database(connection, ids.into_iter(), parents))
    }

    /// The next session, and what of it cannot be read.
    pub(super) fn next(&mut self) -> Option<Told> {
        let mut left_out = Vec::new();
        let session = match self {
            Self::Database(connection, ids, parents) => {
                let id = ids.next()?;
                let lineage = (parents.get(&id).map(String::as_str), root_of(&id, parents));
                let session = from_database(connection, &id, &lineage, &mut left_out);
                session.map_err(|error| format!("session {id}: {error}"))
            }
            Self::Folder(path) => {
                let path = path.take()?;
                from_folder(&path, &mut left_out).map_err(|error| error.to_string())
            }
        };
        Some(Told { session, left_out })
    }
}

/// Whether a database of `SQLite` is one of `OpenCode`'s: it has the tables of one.
pub(super) fn is_opencode(path: &Path) -> Result<bool> {
    const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN \
                          ('session', 'message', 'part')";
    let found = connect(path).and_then(|it| it.query_row(TABLES, [], |row| row.get::<_, i64>(0)));
    found.map(|tables| tables == 3).map_err(|error| {
        Error::trace(path, format!("cut off or damaged ({error}); copy the file again"))
    })
}

/// Nothing is written. A database that no program has open is read as it lies, for its folder may be one that
/// nobody may write to.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    }
    let escaped =
        path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
}

fn sessions(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let query = "SELECT id, parent_id FROM session ORDER BY time_created, id";
    connection.prepare(query)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The user's own session that a subagent's goes back to.
fn root_of(id: &str, parents: &HashMap<String, String>) -> String {
    let mut at = id;
    for _ in 0..MOST_GENERATIONS {
        let Some(parent) = parents.get(at) else { break };
        at = parent;
    }
    at.to_owned()
}

fn from_database(
    connection: &Connection,
    id: &str,
    (parent, root): &(Option<&str>, String),
    left_out: &mut Vec<String>,
) -> rusqlite::Result<String> {
    let list = |query: &str| -> rusqlite::Result<Vec<(String, String, String)>> {
        let mut statement = connection.prepare(query)?;
        let rows = statement.query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    };
    let mut parts: HashMap<String, Vec<Value>> = HashMap::new();
    for (own, message, data) in
        list("SELECT id, message_id, data FROM part WHERE session_id = ?1 ORDER BY id")?
    {
        match with_id(&data, &own) {
            Some(part) => parts.entry(message).or_default().push(part),
            None => left_out.push(format!("session {id}: part {own}: no JSON object")),
        }
    }
    let mut messages = Vec::new();
    for (own, _, data) in list(
        "SELECT id, session_id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id",
    )? {
        match with_id(&data, &own) {
            Some(info) => messages
                .push(json!({"info": info, "parts": parts.remove(&own).unwrap_or_default()})),
            None => left_out.push(format!("session {id}: message {own}: no JSON object")),
        }
    }
    let info = json!({"id": id, "parentID": parent});
    Ok(json!({"info": info, "messages": messages, "rootID": root}).to_string())
}

/// A record of the database has its id in a column of its own.
fn with_id(data: &str, id: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(data).ok()?;
    value.as_object_mut()?.insert("id".to_owned(), Value::from(id));
    Some(value)
}

/// Whether a file is a session of such a folder: `storage/session/PROJECT/ses_….json`.
pub(super) fn is_session_file(path: &Path) -> bool {
    let named = |path: Option<&Path>, name: &str| {
        path.and_then(Path::file_name).is_some_and(|found| found == name)
    };
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let session = path.parent().and_then(Path::parent);
    name.starts_with("ses_")
        && named(session, "session")
        && named(session.and_then(Path::parent), "storage")
}

/// The files that a session of a folder is made of, its own first.
pub(super) fn files_of(session: &Path) -> Vec<PathBuf> {
    let mut files = vec![session.to_owned()];
    let Some(storage) = session.ancestors().nth(3) else { return files };
    let stem = session.file_stem().unwrap_or_default();
    for message in json_files(&storage.join("message").join(stem)) {
        let parts = storage.join("part").join(message.file_stem().unwrap_or_default());
        files.push(message);
        files.extend(json_files(&parts));
    }
    files
}

/// A folder's files in the order of their names, which is that of their making.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_json = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_json).collect();
    files.sort();
    files
}

fn from_folder(
    path: &Path,
    left_out: &mut Vec<String>,
) -> Outcome<String, Box<dyn std::error::Error>> {
    let info = json_of(path)?;
    let mut messages: Vec<Value> = Vec::new();
    for file in files_of(path).into_iter().skip(1) {
        // One that is being written is whole the next time.
        let value = match json_of(&file) {
            Ok(value) => value,
            Err(error) => {
                left_out.push(format!("{}: {error}", file.display()));
                continue;
            }
        };
        let Some(message) = value.get("messageID") else {
            messages.push(json!({"info": value, "parts": []}));
            continue;
        };
        // Of a message that could not be read the parts tell nothing.
        let last = messages.last_mut().filter(|last| last["info"]["id"] == *message);
        if let Some(parts) = last.and_then(|last| last["parts"].as_array_mut()) {
            parts.push(value);
        }
    }
    Ok(json!({"info": info, "messages": messages, "rootID": root_of_file(path, &info)}).to_string())
}

fn json_of(path: &Path) -> Outcome<Value, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// The user's own session that a subagent's goes back to, by the files that lie beside it; as far as they are
/// there.
fn root_of_file(path: &Path, info: &Value) -> Option<String> {
    let parent = |info: &Value| info["parentID"].as_str().map(str::to_owned);
    let mut root = parent(info)?;
    for _ in 0..MOST_GENERATIONS {
        let above = json_of(&path.with_file_name(format!("{root}.json"))).ok();
        let Some(next) = above.as_ref().and_then(parent) else { break };
        root = next;
    }
    Some(root)
}

#[cfg(test)]
#[path = "opencode_store_tests.rs"]
mod tests;
