//! Every record: its fields are the table's columns, and any row comes back equal from the journal and
//! from Parquet.

use agentbench::trace::record::{
    ClientSampleRow, EngineMetricsRow, EngineSampleRow, LevelRow, PowerRow, Record, RequestRow,
    ToolCallRow, TrajectoryRow, TurnRow, UnitRow,
};
use agentbench::trace::{Row, Run, schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{all, create};

fn fields(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn check_columns<T: Record + Default>() {
    let columns: Vec<String> =
        schema::schema(T::TABLE).fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(fields(&serde_json::to_value(T::default()).unwrap()), columns, "{:?}", T::TABLE);
}

#[test]
fn fields_are_columns() {
    check_columns::<TurnRow>();
    check_columns::<UnitRow>();
    check_columns::<ToolCallRow>();
    check_columns::<EngineMetricsRow>();
    check_columns::<EngineSampleRow>();
    check_columns::<PowerRow>();
    check_columns::<RequestRow>();
    check_columns::<TrajectoryRow>();
    check_columns::<LevelRow>();
    check_columns::<ClientSampleRow>();
}

/// The words that an enum column takes.
fn words(column: &str) -> Option<&'static [&'static str]> {
    Some(match column {
        "outcome" => &["ok", "http_error", "upstream_error", "client_cancelled", "truncated"],
        "engine_join" => &["none"],
        "status" => &["ok", "failed", "cancelled"],
        "output_length" => &["ok", "short", "long", "unverified"],
        "phase" => &["ramp", "warmup", "steady", "tail"],
        "server_history" => &["followed", "unknown"],
        _ => return None,
    })
}

fn float() -> impl Strategy<Value = Value> {
    use prop::num::f64;
    (f64::NORMAL | f64::SUBNORMAL | f64::ZERO).prop_map(|number| json!(number))
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9-]{1,12}",
        any::<String>(),
        Just(
            "quote \" backslash \\ newline \n nul \0 del \u{7f} emoji 🦀 line \u{2028}".to_owned()
        ),
    ]
    .prop_map(Value::String)
}

fn list(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(item, 0..5).prop_map(Value::Array)
}

/// One entry of an attempt log.
fn attempt() -> impl Strategy<Value = Value> {
    let (status, error) = (prop::option::of(any::<u16>()), prop::option::of(text()));
    (float(), float(), status, error).prop_map(|(start_ms, end_ms, http_status, error)| {
        json!({"start_ms": start_ms, "end_ms": end_ms, "http_status": http_status, "error": error})
    })
}

/// Any value of a column, by its Arrow type; enums by their words.
fn cell(table_kind: bool, name: &str, data_type: &str) -> BoxedStrategy<Value> {
    if table_kind && name == "kind" {
        return prop::sample::select(vec!["main", "subagent", "utility"])
            .prop_map(|word| json!(word))
            .boxed();
    }
    if let Some(words) = words(name) {
        return prop::sample::select(words).prop_map(|word| json!(word)).boxed();
    }
    match data_type {
        "Utf8" => text().boxed(),
        "Boolean" => any::<bool>().prop_map(|value| json!(value)).boxed(),
        "Float64" => float().boxed(),
        "UInt16" => any::<u16>().prop_map(|value| json!(value)).boxed(),
        "UInt32" => any::<u32>().prop_map(|value| json!(value)).boxed(),
        "UInt64" => any::<u64>().prop_map(|value| json!(value)).boxed(),
        "List(Utf8)" => list(text()).boxed(),
        "List(Int64)" => list(any::<i64>().prop_map(|value| json!(value))).boxed(),
        "List(UInt32)" => list(any::<u32>().prop_map(|value| json!(value))).boxed(),
        "List(Float64)" => list(float()).boxed(),
        r#"List(Struct("start_ms": Float64, "end_ms": Float64, "http_status": UInt16, "error": Utf8))"# => {
            list(attempt()).boxed()
        }
        other => panic!("no values for {other}"),
    }
}

/// Any row of a table: each column filled, or null where the record allows it.
fn any_row<T: Record + Default + std::fmt::Debug>() -> BoxedStrategy<T> {
    let defaults = serde_json::to_value(T::default()).unwrap();
    let is_turn = T::TABLE == agentbench::trace::Table::Turns;
    let mut columns: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
    for field in schema::schema(T::TABLE).fields() {
        let name = field.name().clone();
        let nullable = defaults[&name].is_null();
        let cell = cell(is_turn, &name, &field.data_type().to_string());
        // Links are worked out when a run is closed: what a row says of them is replaced.
        let cell = if name == "engine_row" {
            Just(Value::Null).boxed()
        } else if nullable {
            prop_oneof![1 => Just(Value::Null), 3 => cell].boxed()
        } else {
            cell
        };
        columns = (columns, cell)
            .prop_map(move |(mut row, value)| {
                row.insert(name.clone(), value);
                row
            })
            .boxed();
    }
    columns.prop_map(|row| serde_json::from_value(Value::Object(row)).unwrap()).boxed()
}

fn check_round_trip<T>()
where
    T: Record + Default + std::fmt::Debug + PartialEq + Clone,
    Row: From<T>,
{
    let config = ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() };
    proptest!(config, |(rows in prop::collection::vec(any_row::<T>(), 1..12))| {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        let writer = create(&dir);
        for row in &rows {
            prop_assert!(writer.sender().send(row.clone()));
        }
        drop(writer);
        prop_assert_eq!(&all::<T>(&Run::open(&dir).unwrap()), &rows, "from the journal");
        let run = Run::recover(&dir).unwrap();
        prop_assert_eq!(run.row_count(T::TABLE), rows.len() as u64);
        prop_assert_eq!(&all::<T>(&run), &rows, "from Parquet");
    });
}

#[test]
fn rows_come_back_equal() {
    check_round_trip::<TurnRow>();
    check_round_trip::<ToolCallRow>();
    check_round_trip::<EngineMetricsRow>();
    check_round_trip::<EngineSampleRow>();
    check_round_trip::<PowerRow>();
    check_round_trip::<RequestRow>();
    check_round_trip::<TrajectoryRow>();
    check_round_trip::<LevelRow>();
    check_round_trip::<ClientSampleRow>();
}

#[test]
fn units_come_back_equal_and_once() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    let texts = ["", "one", "two \"quoted\" \u{0} \n", "three"];
    for round in 0..3 {
        for text in texts {
            assert!(writer.sender().send(super::unit(text)), "round {round}");
        }
    }
    let manifest = writer.finish().unwrap();
    assert_eq!(manifest.rows["messages"], 4);
    let run = Run::open(&dir).unwrap();
    assert_eq!(all::<UnitRow>(&run), texts.map(super::unit));
    for text in texts {
        assert_eq!(run.unit_text(&super::unit(text).hash).unwrap(), text);
    }
    let unknown = "0".repeat(32);
    let error = run.unit_text(&unknown).unwrap_err().to_string();
    assert!(error.contains(&unknown) && !error.contains('\n'), "{error}");
}
