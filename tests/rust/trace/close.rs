//! A run that is closed in good order: files, manifest, links, streams, request bodies.

use std::os::unix::fs::PermissionsExt;

use agentbench::api::{Api, parse_request};
use agentbench::trace::record::{
    EngineJoin, EngineMetricsRow, Outcome, PowerRow, Table, TurnRow, UnitRow,
};
use agentbench::trace::{Run, schema};

use super::{all, create, file_names, journal, turn, wait_until};

#[test]
fn a_closed_run_has_parquet_alone_and_counts() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("results/run");
    let writer = create(&dir);
    let rows = writer.sender();
    for index in 0..3000 {
        assert!(rows.send_blocking(turn(index)));
    }
    writer.update_manifest(|manifest| manifest.notes.push("a note".into())).unwrap();
    let manifest = writer.finish().unwrap();
    assert!(manifest.complete && !manifest.partial);
    assert_eq!(manifest.rows.iter().collect::<Vec<_>>(), [(&"turn_traces".to_owned(), &3000)]);
    assert_eq!(manifest.notes, ["a note"]);
    assert!(manifest.dropped.is_empty());
    assert_eq!(file_names(&dir), ["manifest.json", "turn_traces.parquet"]);
    assert!(!rows.send(turn(0)), "a closed writer takes no rows");
    assert_eq!(rows.dropped(), 1);

    let run = Run::open(&dir).unwrap();
    assert_eq!(run.manifest(), &manifest);
    let turns = all::<TurnRow>(&run);
    assert_eq!(turns, (0..3000).map(turn).collect::<Vec<_>>());
    assert!(run.has(Table::Turns) && !run.has(Table::Power));
    assert_eq!(all::<PowerRow>(&run), []);
    let empty = run.batches(Table::Power).unwrap();
    assert_eq!(empty.schema(), schema::schema(Table::Power));

    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for name in file_names(&dir) {
        assert_eq!(mode(&dir.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_run_without_rows_opens() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    create(&dir).finish().unwrap();
    let run = Run::open(&dir).unwrap();
    assert!(run.manifest().complete);
    assert_eq!(all::<TurnRow>(&run), []);
}

#[test]
fn columns_can_be_chosen() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    writer.sender().send(turn(7));
    let check = |run: &Run| {
        let rows: Vec<TurnRow> = run
            .rows_of_columns(&["turn", "osl_text", "no_such_column"])
            .unwrap()
            .map(|row| row.unwrap())
            .collect();
        let want = TurnRow { turn: 7, osl_text: "answer 7".into(), ..TurnRow::default() };
        assert_eq!(rows, [want]);
    };
    wait_until("the row is in the journal", || Run::open(&dir).unwrap().has(Table::Turns));
    check(&Run::open(&dir).unwrap());
    writer.finish().unwrap();
    check(&Run::open(&dir).unwrap());
}

#[test]
fn turns_are_linked_to_ticks() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    let rows = writer.sender();
    let ended = |index: u32, at: f64, isl: u64, osl: u64| TurnRow {
        response_end_time: Some(at),
        isl: Some(isl),
        osl: Some(osl),
        outcome: Outcome::Ok,
        ..turn(index)
    };
    rows.send(ended(0, 100.0, 50, 5));
    rows.send(ended(1, 200.0, 60, 6));
    rows.send(ended(2, 200.01, 80, 8));
    rows.send(ended(3, 300.0, 50, 5));
    let tick = |ts: f64, n: u64, isl: f64, osl: f64| EngineMetricsRow {
        ts,
        window_end: ts + 0.002,
        n,
        isl: Some(isl),
        osl: Some(osl),
        stop_reason: "{}".into(),
        ..EngineMetricsRow::default()
    };
    rows.send(tick(100.05, 1, 50.0, 5.0));
    rows.send(tick(200.05, 2, 70.0, 7.0));
    let want = [
        (Some(0), EngineJoin::Exact),
        (Some(1), EngineJoin::Shared),
        (Some(1), EngineJoin::Shared),
        (None, EngineJoin::None),
    ];
    let links = |run: &Run| -> Vec<_> {
        all::<TurnRow>(run).iter().map(|turn| (turn.engine_row, turn.engine_join)).collect()
    };
    wait_until("all rows are in the journals", || {
        let run = Run::open(&dir).unwrap();
        run.row_count(Table::Turns) == 4 && run.row_count(Table::EngineMetrics) == 2
    });
    assert_eq!(links(&Run::open(&dir).unwrap()), want, "while the run goes");
    writer.finish().unwrap();
    assert_eq!(links(&Run::open(&dir).unwrap()), want, "when it is closed");
}

#[test]
fn request_bodies_come_back_byte_for_byte() {
    let bodies: [(Api, &str); 6] = [
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"t","input_schema":{}}],"messages":[{"role":"user","content":"hi"}],"stream":true}"#,
        ),
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"a"}],"tools":[{"name":"t","input_schema":{}}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"text","text":"ho","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"\u00e9 \n 🦀"}],"stream":true}"#,
        ),
        (
            Api::Messages,
            "{ \"messages\" : [ {\"content\":\"x\", \"role\":\"user\"} ,\n {\"content\":\"y\",\"role\":\"assistant\"}], \"system\":\"s\", \"n\": 1.0e3}",
        ),
        (
            Api::Chat,
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],"model":"m","tools":[{"type":"function","function":{"name":"f"}}]}"#,
        ),
        (
            Api::Chat,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}],\r\n\"tools\":null,\"temperature\":0}\n",
        ),
        (Api::Chat, r#"{"messages":[]}"#),
    ];
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    for (index, (api, body)) in bodies.iter().enumerate() {
        let parsed = parse_request(*api, body.as_bytes()).unwrap();
        for unit in &parsed.units {
            writer.sender().send(UnitRow::from(unit));
        }
        writer.sender().send(TurnRow {
            unit_hashes: parsed.units.iter().map(|unit| unit.hash.hex()).collect(),
            body_template: parsed.template,
            ..turn(index as u32)
        });
    }
    let check = |run: &Run| {
        let turns = all::<TurnRow>(run);
        assert_eq!(turns.len(), bodies.len());
        for (turn, (_, body)) in turns.iter().zip(&bodies) {
            let rebuilt = String::from_utf8(run.request_body(turn).unwrap()).unwrap();
            assert_eq!(&rebuilt, body);
        }
        let text = run.isl_text(&turns[2]).unwrap();
        assert_eq!(
            text,
            "\"s\"\n{\"content\":\"x\", \"role\":\"user\"}\n{\"content\":\"y\",\"role\":\"assistant\"}"
        );
    };
    wait_until("the turns are in the journal", || {
        Run::open(&dir).unwrap().row_count(Table::Turns) == bodies.len() as u64
    });
    check(&Run::open(&dir).unwrap());
    writer.finish().unwrap();
    check(&Run::open(&dir).unwrap());
    assert!(!journal(&dir, Table::Turns).exists());
}
