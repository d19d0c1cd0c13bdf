use super::*;
use crate::power::Boundary;
use crate::trace::record::PowerRow;

const SLO: &str = "ttft.p95<=1s";

fn level(level: u32, agents: u32, verdict: &str, ttft: f64) -> LevelRow {
    LevelRow {
        level,
        agents,
        start_ms: Some(f64::from(level) * 1e4),
        end_ms: Some(f64::from(level) * 1e4 + 5e3),
        n_requests: 24,
        n_failed: 4,
        n_steady_trajectories: 10,
        output_tokens_per_s: Some(400.0),
        verdict: verdict.into(),
        values: serde_json::json!({ SLO: ttft, "errors<=0": 0 }).to_string(),
        ..LevelRow::default()
    }
}

fn settings(gpus: Option<u32>) -> CapacitySettings {
    CapacitySettings {
        slo: vec![SLO.into(), "errors<=0".into()],
        max_agents: 4,
        resolution: 1,
        gpu_count: gpus,
        ..CapacitySettings::default()
    }
}

fn figures(
    levels: &[LevelRow],
    rows: &[PowerRow],
    settings: &CapacitySettings,
    power: &PowerSettings,
) -> CapacityFigures {
    let readings = Readings::of_rows(rows);
    capacity_figures(levels, &readings, settings, power, &ReplaySettings::default())
}

#[test]
fn the_answer_follows_from_the_verdicts() {
    let tried = |verdicts: &[(u32, &str)]| {
        let rows: Vec<LevelRow> = (0..)
            .zip(verdicts)
            .map(|(index, (agents, verdict))| level(index, *agents, verdict, 2000.0))
            .collect();
        let capacity = figures(&rows, &[], &settings(Some(2)), &PowerSettings::default());
        (capacity.max_agents, capacity.saturated, capacity.result)
    };
    let (agents, saturated, words) = tried(&[(2, "pass"), (4, "pass"), (4, "pass")]);
    assert_eq!((agents, saturated), (Some(4), false));
    assert!(words.starts_with("not saturated"), "{words}");
    let (agents, saturated, words) = tried(&[(2, "pass"), (4, "fail"), (3, "fail")]);
    assert_eq!((agents, saturated), (Some(2), true));
    assert!(words.starts_with("2 agents hold"), "{words}");
    let (agents, saturated, words) = tried(&[(2, "fail"), (1, "fail")]);
    assert_eq!((agents, saturated), (Some(0), true));
    assert!(words.starts_with("0 agents"), "{words}");
    let (agents, saturated, words) = tried(&[(2, "invalid")]);
    assert_eq!((agents, saturated), (None, false));
    assert!(words.starts_with("no level could be judged"), "{words}");
}

fn power(source: &str, device: &str, watts: f64) -> Vec<PowerRow> {
    (0..600)
        .map(|tick| PowerRow {
            ts: f64::from(tick) * 0.1,
            due: f64::from(tick) * 0.1,
            source: source.into(),
            device: device.into(),
            power_w: Some(watts),
            ..PowerRow::default()
        })
        .collect()
}

fn sampled(source: &str, devices: &[&str]) -> PowerSettings {
    PowerSettings {
        source: Some(source.into()),
        boundary: Some(Boundary::Device),
        devices: devices.iter().map(|device| (*device).into()).collect(),
        interval_ms: 100.0,
        ..PowerSettings::default()
    }
}

#[test]
fn figures_are_over_the_gpus_and_their_power() {
    let levels = [level(0, 2, "pass", 500.0), level(1, 4, "fail", 2000.0)];
    // What another source tells counts for nothing.
    let rows = [power("nvml", "a", 300.0), power("nvml", "b", 100.0), power("rapl", "c", 9.0)];
    let nvml = sampled("nvml", &["a", "b"]);
    let capacity = figures(&levels, &rows.concat(), &settings(None), &nvml);
    let near = |figure: &Figure, expected: f64| {
        let value = figure.value.expect("a figure");
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} against {expected}");
    };
    assert_eq!(capacity.gpus, Figure::known(2.0));
    assert_eq!(capacity.agents_per_gpu, Figure::known(1.0));
    assert_eq!(capacity.output_tokens_per_s_per_gpu, Figure::known(200.0));
    assert_eq!(capacity.trajectories_per_h_per_gpu, Figure::known(3600.0));
    near(&capacity.mean_power_w, 400.0);
    near(&capacity.energy_j, 2000.0);
    near(&capacity.agents_per_mw, 5000.0);
    // 400 tokens/s for 5 s; 24 requests less 4 failed; 10 trajectories.
    near(&capacity.joules_per_output_token, 1.0);
    near(&capacity.joules_per_turn, 100.0);
    near(&capacity.joules_per_trajectory, 200.0);
    assert_eq!(capacity.binding_condition.as_deref(), Some(SLO));
    assert_eq!(capacity.power.load, "at the service level ttft.p95<=1s and errors<=0");
    let with_pue = PowerSettings { pue: Some(1.25), ..nvml };
    let capacity = figures(&levels, &rows.concat(), &settings(None), &with_pue);
    near(&capacity.mean_power_w, 500.0);
    near(&capacity.agents_per_mw, 4000.0);
    assert_eq!(capacity.power.boundary, Some(Boundary::Facility));
}

#[test]
fn no_power_figure_is_made_of_a_level_that_failed_or_of_others_power() {
    let rows = power("nvml", "a", 300.0);
    let nvml = sampled("nvml", &["a"]);
    let figures_of = |capacity: &CapacityFigures| {
        [
            &capacity.agents_per_mw,
            &capacity.joules_per_output_token,
            &capacity.joules_per_turn,
            &capacity.joules_per_trajectory,
        ]
        .map(Clone::clone)
    };
    let failed = [level(0, 2, "fail", 2000.0), level(1, 1, "fail", 2000.0)];
    let capacity = figures(&failed, &rows, &settings(Some(1)), &nvml);
    for figure in figures_of(&capacity) {
        assert_eq!(figure, Figure::unknown("no level held the service level"));
    }
    let levels = [level(0, 2, "pass", 500.0)];
    let simulated = ReplaySettings { simulated: true, ..ReplaySettings::default() };
    let readings = Readings::of_rows(&rows);
    let capacity = capacity_figures(&levels, &readings, &settings(Some(1)), &nvml, &simulated);
    for figure in figures_of(&capacity) {
        assert_eq!(figure.value, None);
        assert!(figure.reason.as_deref().is_some_and(|reason| reason.contains("simulated")));
    }
    // A device that is missing leaves no total.
    let absent = sampled("nvml", &["a", "b"]);
    let capacity = figures(&levels, &rows, &settings(Some(1)), &absent);
    assert_eq!(capacity.agents_per_mw, Figure::unknown("b: no power readings in the window"));
}

#[test]
fn what_is_not_known_is_null_with_a_reason() {
    let levels = [level(0, 2, "pass", 500.0)];
    let off = PowerSettings { reason: Some("switched off".into()), ..PowerSettings::default() };
    let capacity = figures(&levels, &[], &settings(None), &off);
    assert_eq!(capacity.client_limited, None);
    assert_eq!(capacity.binding_condition, None);
    for (figure, reason) in [
        (&capacity.agents_per_gpu, "--gpu-count"),
        (&capacity.output_tokens_per_s_per_gpu, "--gpu-count"),
        (&capacity.joules_per_turn, "switched off"),
        (&capacity.agents_per_mw, "switched off"),
    ] {
        assert_eq!(figure.value, None);
        assert!(figure.reason.as_deref().is_some_and(|text| text.contains(reason)));
    }
}

#[test]
fn a_limited_client_leaves_no_result() {
    let of = |limited| {
        let rows = [
            LevelRow { client_limited: Some(false), ..level(0, 2, "pass", 500.0) },
            LevelRow {
                client_limited: limited,
                reason: Some("client-limited: timers late".into()),
                ..level(1, 4, "invalid", 500.0)
            },
        ];
        figures(&rows, &[], &settings(Some(2)), &PowerSettings::default())
    };
    let limited = of(Some(true));
    assert_eq!((limited.max_agents, limited.client_limited), (None, Some(true)));
    assert!(limited.invalid);
    assert_eq!(limited.agents_per_gpu.value, None);
    let words = "no result: at 4 agents the client, not the engine, was the bottleneck";
    assert!(limited.result.starts_with(words), "{}", limited.result);
    assert!(limited.result.contains("timers late"), "{}", limited.result);
    let sound = of(None);
    assert_eq!((sound.max_agents, sound.client_limited), (Some(2), Some(false)));
    assert_eq!(sound.speed_overstated_levels, Vec::<u32>::new());
}
