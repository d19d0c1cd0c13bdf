//! Texts and what must come out: of each detector what it masks, and near misses that must stay.

use std::sync::LazyLock;

use super::*;

/// Made once: the pattern takes its time to compile.
fn masker() -> &'static Masker {
    static MASKER: LazyLock<Masker> = LazyLock::new(|| {
        let names = Names {
            users: ["alice", "Alice Example", "root", "al", "b.ob"].map(str::to_owned).to_vec(),
            hosts: ["gpu-node-7", "localhost"].map(str::to_owned).to_vec(),
        };
        Masker::with_key([7; 16], names)
    });
    &MASKER
}

/// A text with each mask written as the kind of what stood there and the text itself.
fn shown(edits: &[Edit], text: &str) -> String {
    let told: Vec<Edit> = edits
        .iter()
        .map(|edit| Edit {
            mask: format!("<{} {}>", edit.kind.as_str(), &text[edit.span.clone()]),
            ..edit.clone()
        })
        .collect();
    apply(text, &told)
}

#[test]
fn what_is_masked() {
    let masker = masker();
    let (a20, a36, a40) = (
        "A1b2C3d4E5f6G7h8I9j0",
        "A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8",
        "A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8I9j0",
    );
    let hex64 = "0123456789abcdef".repeat(4);
    for (text, expected) in [
        ("mail alice.smith+x@mail.example.com.".into(), "mail <email alice.smith+x@mail.example.com>.".into()),
        ("<noreply@anthropic.com>".into(), "<<email noreply@anthropic.com>>".to_owned()),
        ("a@b.co, c@d.io".into(), "<email a@b.co>, <email c@d.io>".into()),
        (format!("key=sk-ant-api03-{a20}_-x"), format!("key=<key sk-ant-api03-{a20}_-x>")),
        (format!("sk-proj-{a20}-{a20}"), format!("<key sk-proj-{a20}-{a20}>")),
        (format!("'sk-{a40}'"), format!("'<key sk-{a40}>'")),
        (format!("ghp_{a36} gho_{a36}"), format!("<key ghp_{a36}> <key gho_{a36}>")),
        (format!("github_pat_{a20}_{a40}"), format!("<key github_pat_{a20}_{a40}>")),
        (format!("glpat-{a20}"), format!("<key glpat-{a20}>")),
        ("AKIAIOSFODNN7EXAMPLE".into(), "<key AKIAIOSFODNN7EXAMPLE>".into()),
        (format!("aws_secret_access_key = {a40}"), format!("aws_secret_access_key = <key {a40}>")),
        (format!("AIza{}", &a40[..35]), format!("<key AIza{}>", &a40[..35])),
        (format!("hf_{}", &a36[..34]), format!("<key hf_{}>", &a36[..34])),
        ("xoxb-1234567890-abc".into(), "<key xoxb-1234567890-abc>".into()),
        (format!("sk_live_{a20}"), format!("<key sk_live_{a20}>")),
        (format!("npm_{a36}"), format!("<key npm_{a36}>")),
        (format!("SG.{}.{a40}abc", &a36[..22]), format!("<key SG.{}.{a40}abc>", &a36[..22])),
        (format!("gsk_{a40}"), format!("<key gsk_{a40}>")),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3".into(), "<key eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3>".into()),
        (format!("Authorization: Bearer {a20}"), format!("Authorization: Bearer <key {a20}>")),
        ("\"authorization\": \"Basic dXNlcjpwYXNzd29yZDE=\"".into(), "\"authorization\": \"Basic <key dXNlcjpwYXNzd29yZDE=>\"".into()),
        ("https://bob:hunter2@host.example/x".into(), "https://<key bob:hunter2>@host.example/x".into()),
        (
            "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\nabc\n-----END RSA PRIVATE KEY-----\ny".into(),
            "x\n<key -----BEGIN RSA PRIVATE KEY-----\nMIIEow==\nabc\n-----END RSA PRIVATE KEY----->\ny".into(),
        ),
        // Source code in which the line breaks are written as escapes, and a key that was cut off.
        (
            r#""-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n""#.into(),
            r#""<key -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----->\n""#.into(),
        ),
        (
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{a40}\n{a40}\nthen words"),
            format!("<key -----BEGIN OPENSSH PRIVATE KEY-----\n{a40}\n{a40}>\nthen words"),
        ),
        ("cd /home/bob/proj && ls /home/bob".into(), "cd /home/<user bob>/proj && ls /home/<user bob>".into()),
        ("in /home/bob.".into(), "in /home/<user bob>.".into()),
        ("/Users/Bob Smith/x".into(), "/Users/<user Bob> Smith/x".into()),
        (r"C:\Users\bob\x".into(), r"C:\Users\<user bob>\x".into()),
        (r#""C:\\Users\\bob\\x""#.into(), r#""C:\\Users\\<user bob>\\x""#.into()),
        ("alice: hi alice,alice-alice".into(), "<user alice>: hi <user alice>,<user alice>-<user alice>".into()),
        ("by Alice Example on gpu-node-7:8000".into(), "by <user Alice Example> on <host gpu-node-7>:8000".into()),
        ("/tmp/x1/home/alice/p".into(), "/tmp/x1/home/<user alice>/p".into()),
        ("-home-alice-proj b.ob".into(), "-home-<user alice>-proj <user b.ob>".into()),
        (format!("user_{hex64}_account_01234567-89ab-cdef-0123-456789abcdef_session_x"), format!("user_<account {hex64}>_account_<account 01234567-89ab-cdef-0123-456789abcdef>_session_x")),
        (r#"{"device_id":"0123456789abcdef0123456789abcdef","account_uuid":"","session_id":"s"}"#.into(), r#"{"device_id":"<account 0123456789abcdef0123456789abcdef>","account_uuid":"","session_id":"s"}"#.into()),
        // Behind the letter of an escape.
        (r#""\nalice\tbob@x.com\u003cc@d.org\u003e""#.into(), r#""\n<user alice>\t<email bob@x.com>\u003c<email c@d.org>\u003e""#.into()),
        (format!(r"\nsk-{a40}\n"), format!(r"\n<key sk-{a40}>\n")),
        (r"\n/home/bob\n".into(), r"\n/home/<user bob>\n".into()),
    ] {
        let text: String = text;
        let expected: String = expected;
        assert_eq!(shown(&masker.find(&text), &text), expected, "{text}");
    }
}

#[test]
fn what_stays() {
    let masker = masker();
    for text in [
        "git@github.com:owner/repo.git",
        "react@18.2.0 @types/node x@y W@x.shape pkg@latest user@10.0.0.1",
        "sk-learn sk-ant- sk-dummy-for-tests sk-some-long-kebab-case-name-of-words",
        "task-A1b2C3d4E5f6G7h8I9j0 disk_sk-A1b2C3d4E5f6G7h8I9j0",
        "hf_hub_download ghp_short github_pat_x xoxb AKIA AKIAIOSFODNN7EXAMPLES AIzaShort npm_install gsk_x",
        "the bearer of bad news that are authentication-mechanisms",
        "eyJhbGciOiJIUzI1NiJ9 eyJ.eyJ.x",
        "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "https://host:8000/a@b http://localhost:80/",
        "/home/ /home /home/$USER/x /home/{user}/x /home/<user>/x /home/*/x /srv/home/x example.com/home/x ~/home/x",
        "/Users/Shared/x /root/x root malice alices alice_x xalice al localhost",
        "user_0123 account_x \"account_uuid\":\"\" \"device_id\":\"cuda:0\"",
        "0123456789abcdef0123456789abcdef01234567",
        "",
    ] {
        assert_eq!(shown(&masker.find(text), text), text);
    }
}

#[test]
fn the_same_text_has_the_same_mask_wherever_it_stands() {
    let masker = masker();
    let mask = |text: &str| masker.find(text).first().map(|edit| edit.mask.clone()).unwrap();
    let name = mask("/home/alice/x");
    assert_eq!(
        [mask("alice"), mask(r"C:\Users\alice"), mask(r"\nalice\n")],
        [name.clone(), name.clone(), name.clone()]
    );
    assert!(
        name.starts_with("redacted-user-") && name.len() == "redacted-user-".len() + 10,
        "{name}"
    );
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3";
    assert_eq!(mask(token), mask(&format!("Authorization: Bearer {token}")));
    assert_eq!(mask(r"/home/j\u00fcrgen/x"), mask("/home/jürgen/x"));
    assert_ne!(mask("/home/bob"), name);
    assert_ne!(masker.mask(Kind::Email, "x"), masker.mask(Kind::Key, "x"));
    assert_ne!(
        Masker::new(Names::default()).mask(Kind::Key, "x"),
        Masker::new(Names::default()).mask(Kind::Key, "x")
    );
    // A mask is nothing that would be masked again.
    for kind in Kind::ALL {
        let mask = masker.mask(kind, "x");
        let text = format!("/x {mask} /home/{mask}/y");
        assert_eq!(masker.text(&text), text);
    }
}

#[test]
fn json_stays_json() {
    let masker = masker();
    let value = serde_json::json!({
        "text": "mail bob@x.com\nat \"/home/alice/a\"",
        "arguments": serde_json::json!({"command": "echo alice\nbob@x.com"}).to_string(),
        "alice": [1, true, null, "é\u{1F600} alice"],
    });
    for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
        let changed = masker.json(&text);
        let read: serde_json::Value = serde_json::from_str(&changed).unwrap();
        let (mail, name) =
            (masker.mask(Kind::Email, "bob@x.com"), masker.mask(Kind::User, "alice"));
        assert_eq!(read["text"], format!("mail {mail}\nat \"/home/{name}/a\""));
        let arguments: serde_json::Value =
            serde_json::from_str(read["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments["command"], format!("echo {name}\n{mail}"));
        assert_eq!(read[&name][3], format!("é\u{1F600} {name}"));
        assert!(!changed.contains("alice") && !changed.contains("bob@"));
    }
}

proptest::proptest! {
    /// Whatever stands around a secret: it is found, and the rest stays.
    #[test]
    fn neighbours_do_not_matter(before in "[ -~\n\té]{0,40}", after in "[ -~\n\té]{0,40}") {
        let masker = masker();
        let secret = "ghp_A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8";
        let text = format!("{before} {secret} {after}");
        let changed = masker.text(&text);
        proptest::prop_assert!(changed.contains(&masker.mask(Kind::Key, secret)), "{changed}");
        let json = serde_json::to_string(&text).unwrap();
        let read: String = serde_json::from_str(&masker.json(&json)).unwrap();
        proptest::prop_assert_eq!(read, changed);
    }

    #[test]
    fn any_text_is_read(text in "\\PC{0,60}") {
        let masker = masker();
        let changed = masker.text(&text);
        proptest::prop_assert_eq!(masker.find(&text).is_empty(), changed == text);
        let json = serde_json::to_string(&text).unwrap();
        proptest::prop_assert!(serde_json::from_str::<String>(&masker.json(&json)).is_ok());
    }
}
