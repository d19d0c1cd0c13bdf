//! What a database and folders hold, and the export that each must come to.

use std::collections::HashMap;
use std::path::Path;

use super::*;

/// Every session as it comes, and what was left out.
fn told(path: &Path, container: Container) -> (Vec<Value>, Vec<String>) {
    let mut sessions = Sessions::open(path, container).unwrap();
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    while let Some(told) = sessions.next() {
        found.push(serde_json::from_str(&told.session.unwrap()).unwrap());
        left_out.extend(told.left_out);
    }
    (found, left_out)
}

const SCHEMA: &str = "
    CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, time_created INTEGER, title TEXT);
    CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
    CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);";

/// Sessions stand in the order of their making; so do messages, whatever their ids; parts in that of their ids.
const ROWS: &str = r#"
    INSERT INTO session VALUES ('ses_b', 'ses_a', 20, 't'), ('ses_c', 'ses_b', 30, 't'),
        ('ses_a', NULL, 10, 't');
    INSERT INTO message VALUES
        ('msg_2', 'ses_a', 1, '{"role":"user"}'),
        ('msg_1', 'ses_a', 2, '{"role":"assistant","modelID":"m"}'),
        ('msg_3', 'ses_a', 3, '{"role":"assi'),
        ('msg_4', 'ses_b', 4, '{"role":"user","id":"another"}');
    INSERT INTO part VALUES
        ('prt_2', 'msg_1', 'ses_a', '{"type":"text","text":"second"}'),
        ('prt_1', 'msg_1', 'ses_a', '{"type":"text","text":"first"}'),
        ('prt_3', 'msg_1', 'ses_a', '[1]'),
        ('prt_4', 'msg_3', 'ses_a', '{"type":"text","text":"of what cannot be read"}'),
        ('prt_5', 'msg_4', 'ses_b', '{"type":"text","text":"look"}');"#;

/// As `ROWS` must come.
fn from_rows() -> Vec<Value> {
    let text = |id: &str, text: &str| json!({"type": "text", "text": text, "id": id});
    vec![
        json!({"info": {"id": "ses_a", "parentID": null}, "rootID": "ses_a", "messages": [
            {"info": {"role": "user", "id": "msg_2"}, "parts": []},
            {"info": {"role": "assistant", "modelID": "m", "id": "msg_1"},
             "parts": [text("prt_1", "first"), text("prt_2", "second")]},
        ]}),
        json!({"info": {"id": "ses_b", "parentID": "ses_a"}, "rootID": "ses_a", "messages": [
            {"info": {"role": "user", "id": "msg_4"}, "parts": [text("prt_5", "look")]},
        ]}),
        json!({"info": {"id": "ses_c", "parentID": "ses_b"}, "rootID": "ses_a", "messages": []}),
    ]
}

#[test]
fn a_database_gives_its_sessions_with_what_belongs_to_each() {
    let folder = tempfile::tempdir().unwrap();
    // Signs that mean something in an address.
    let path = folder.path().join("a %?#.db");
    let written = Connection::open(&path).unwrap();
    written.execute_batch(&format!("{SCHEMA}{ROWS}")).unwrap();
    drop(written);
    let left_out = ["session ses_a: part prt_3", "session ses_a: message msg_3"]
        .map(|place| format!("{place}: no JSON object"));
    assert!(is_opencode(&path).unwrap());
    assert_eq!(told(&path, Container::Sqlite), (from_rows(), left_out.to_vec()));
}

#[test]
fn what_a_program_that_has_it_open_wrote_last_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opencode.db");
    let open = Connection::open(&path).unwrap();
    open.execute_batch(&format!("PRAGMA journal_mode = WAL; {SCHEMA}{ROWS}")).unwrap();
    assert!(folder.path().join("opencode.db-wal").metadata().unwrap().len() > 0);
    assert_eq!(told(&path, Container::Sqlite).0, from_rows());
    drop(open);
}

#[test]
fn databases_of_others_are_told_from_opencodes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any.db");
    for (schema, expected) in [
        ("CREATE TABLE notes (id TEXT)", false),
        ("CREATE TABLE session (id TEXT); CREATE TABLE message (id TEXT)", false),
        (SCHEMA, true),
    ] {
        let _ = std::fs::remove_file(&path);
        Connection::open(&path).unwrap().execute_batch(schema).unwrap();
        assert_eq!(is_opencode(&path).unwrap(), expected, "{schema}");
    }
    Connection::open(&path)
        .unwrap()
        .execute_batch("ALTER TABLE session DROP COLUMN parent_id")
        .unwrap();
    let Err(Error::Trace { .. }) = Sessions::open(&path, Container::Sqlite) else {
        panic!("an error")
    };
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(is_opencode(&path).is_err(), "cut off");
}

#[test]
fn a_session_of_a_folder_is_put_together_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("storage");
    let write = |name: &str, content: &str| {
        let path = storage.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("session/p/ses_a.json", r#"{"id":"ses_a"}"#);
    write("session/p/ses_b.json", r#"{"id":"ses_b","parentID":"ses_a"}"#);
    write("session/p/ses_c.json", r#"{"id":"ses_c","parentID":"ses_b"}"#);
    write("session/p/ses_d.json", r#"{"id":"ses_d","parentID":"ses_gone"}"#);
    write("message/ses_c/msg_2.json", r#"{"id":"msg_2","role":"assistant"}"#);
    write("message/ses_c/msg_1.json", r#"{"id":"msg_1","role":"user"}"#);
    write("message/ses_c/msg_3.json", r#"{"id":"msg_3","ro"#);
    write("message/ses_c/notes.txt", "no message");
    write("part/msg_1/prt_1.json", r#"{"id":"prt_1","messageID":"msg_1","text":"do it"}"#);
    write("part/msg_2/prt_3.json", r#"{"id":"prt_3","messageID":"msg_2","text":"b"}"#);
    write("part/msg_2/prt_2.json", r#"{"id":"prt_2","messageID":"msg_2","text":"a"}"#);
    write("part/msg_2/prt_4.json", "");
    write("part/msg_3/prt_5.json", r#"{"id":"prt_5","messageID":"msg_3","text":"not of msg_2"}"#);
    let part =
        |id: &str, message: &str, text: &str| json!({"id": id, "messageID": message, "text": text});
    let session = storage.join("session/p/ses_c.json");
    let (found, left_out) = told(&session, Container::Storage);
    assert_eq!(
        found,
        [json!({"info": {"id": "ses_c", "parentID": "ses_b"}, "rootID": "ses_a", "messages": [
            {"info": {"id": "msg_1", "role": "user"}, "parts": [part("prt_1", "msg_1", "do it")]},
            {"info": {"id": "msg_2", "role": "assistant"},
             "parts": [part("prt_2", "msg_2", "a"), part("prt_3", "msg_2", "b")]},
        ]})]
    );
    let places = ["part/msg_2/prt_4.json", "message/ses_c/msg_3.json"];
    assert_eq!(left_out.len(), places.len(), "{left_out:?}");
    for (line, place) in left_out.iter().zip(places) {
        assert!(line.starts_with(&storage.join(place).display().to_string()), "{line}");
    }
    let root = |name: &str| {
        let path = storage.join("session/p").join(name);
        told(&path, Container::Storage).0[0]["rootID"].clone()
    };
    // A parent that is gone is the last one known.
    let roots = ["ses_a.json", "ses_b.json", "ses_d.json"].map(root);
    assert_eq!(roots, [Value::Null, json!("ses_a"), json!("ses_gone")]);
    write("session/p/ses_e.json", "{");
    let mut broken =
        Sessions::open(&storage.join("session/p/ses_e.json"), Container::Storage).unwrap();
    assert!(broken.next().unwrap().session.is_err());
    assert!(broken.next().is_none());
}

#[test]
fn sessions_files_are_known_by_their_places() {
    for (path, expected) in [
        ("x/storage/session/p/ses_1.json", true),
        ("x/storage/session/global/ses_1.json", true),
        ("x/storage/session/ses_1.json", false),
        ("x/storage/session/p/msg_1.json", false),
        ("x/storage/message/p/ses_1.json", false),
        ("ses_1.json", false),
    ] {
        assert_eq!(is_session_file(Path::new(path)), expected, "{path}");
    }
}

#[test]
fn a_subagents_session_goes_back_to_the_users() {
    let parents: HashMap<String, String> = [("b", "a"), ("c", "b"), ("x", "y"), ("y", "x")]
        .map(|(own, parent)| (own.to_owned(), parent.to_owned()))
        .into();
    for (id, root) in [("a", "a"), ("b", "a"), ("c", "a"), ("other", "other")] {
        assert_eq!(root_of(id, &parents), root, "{id}");
    }
    // Ones that name each other end all the same.
    assert!(["x", "y"].contains(&root_of("x", &parents).as_str()));
}
