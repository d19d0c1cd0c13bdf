//! Power sources through the real wrapper, a real page and a laid-out folder, sampled into rows.

mod curves;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use agentbench::clock::Clock;
use agentbench::power::readings::Readings;
use agentbench::power::{
    GpuChoice, PowerChoice, PowerConfig, PowerSampler, PowerSettings, PowerStats,
};
use agentbench::replay::power_figures::{PowerFigures, replay_power};
use agentbench::replay::{ReplaySettings, window::Window};
use agentbench::trace::record::{Phase, PowerRow, RequestRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};

/// A library built from C, and the file that says what it tells.
fn stub(dir: &Path, state: &str) -> PathBuf {
    let library = dir.join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rust/power/nvml.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success());
    set(dir, state);
    library
}

/// Whole or not at all: the library reads at any time.
fn set(dir: &Path, state: &str) {
    std::fs::write(dir.join("state.new"), state).unwrap();
    std::fs::rename(dir.join("state.new"), dir.join("state")).unwrap();
}

fn nvml(library: &Path, gpus: Option<&[&str]>) -> PowerConfig {
    let list = gpus.map(|gpus| gpus.iter().map(|name| (*name).to_owned()).collect());
    PowerConfig {
        gpus: GpuChoice { list, engine_pid: None },
        interval: Duration::from_millis(20),
        ..PowerConfig::new(PowerChoice::Nvml { library: Some(library.display().to_string()) })
    }
}

/// Samples while `meanwhile` runs; what stands in the run directory afterwards.
fn sampled(
    config: PowerConfig,
    meanwhile: impl FnOnce(),
) -> (PowerSettings, PowerStats, Vec<PowerRow>) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let clock = Clock::start();
    let manifest = Manifest::new(RunKind::Capture, "power".to_owned(), &clock);
    let writer = RunWriter::create(&out, manifest).unwrap();
    let sampler = PowerSampler::start(config, writer.sender(), clock).unwrap();
    let settings = sampler.settings().clone();
    meanwhile();
    let stats = sampler.stop();
    writer.finish().unwrap();
    let rows = Run::open(&out).unwrap().rows::<PowerRow>().unwrap();
    (settings, stats, rows.map(Result::unwrap).collect())
}

fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn nvml_rows_hold_what_the_devices_tell() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "300000 290000 5000000\n-1 100000 -1\n");
    let (settings, stats, rows) = sampled(nvml(&library, None), pause);
    assert_eq!(settings.devices, ["GPU-0", "GPU-1"]);
    assert_eq!(rows.len() as u64, 2 * stats.ticks);
    let first = rows.iter().find(|row| row.device == "GPU-0").unwrap();
    assert_eq!((first.power_w, first.power_avg_w), (Some(300.0), Some(290.0)));
    assert_eq!(first.energy_j, Some(5000.0));
    // The device's own time of the sample, by the same clock here.
    assert!((first.ts - first.device_ts.unwrap()).abs() < 10.0, "{first:?}");
    assert_eq!((first.utilization_pct, first.sm_clock_mhz), (Some(97.0), Some(1980)));
    assert_eq!(first.memory_used_bytes, Some(4096));
    let second = rows.iter().find(|row| row.device == "GPU-1").unwrap();
    assert_eq!((second.power_w, second.energy_j), (Some(100.0), None));
    assert!(rows.iter().all(|row| row.ts >= row.due - 1e-6));
    assert_eq!((stats.failed, stats.rows_dropped), (0, 0));
}

#[test]
fn two_mig_instances_of_one_device_count_once() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "300000 300000 -1\n200000 200000 -1\n");
    let (settings, _, rows) = sampled(nvml(&library, Some(&["MIG-a", "MIG-b"])), pause);
    assert_eq!(settings.devices, ["GPU-0"]);
    assert!(rows.iter().all(|row| row.power_w == Some(300.0)));
}

#[test]
fn a_named_gpu_that_is_not_there_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "1 1 1\n");
    let clock = Clock::start();
    let manifest = Manifest::new(RunKind::Capture, "power".to_owned(), &clock);
    let writer = RunWriter::create(&dir.path().join("run"), manifest).unwrap();
    let error = PowerSampler::start(nvml(&library, Some(&["3"])), writer.sender(), clock);
    assert!(error.unwrap_err().to_string().starts_with("no GPU \"3\""));
}

#[test]
fn sources_that_are_not_there_give_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).display().to_string();
    for (choice, part) in [
        (PowerChoice::Off, "switched off"),
        (PowerChoice::Nvml { library: Some(text("absent.so")) }, "no NVIDIA driver library"),
        (PowerChoice::Rapl { root: text("absent") }, "no RAPL counters"),
        (PowerChoice::Dcgm { url: "http://127.0.0.1:9/metrics".to_owned() }, "cannot connect"),
    ] {
        let (settings, stats, rows) = sampled(PowerConfig::new(choice), || ());
        assert!(settings.reason.as_ref().unwrap().contains(part), "{settings:?}");
        assert_eq!((settings.source, stats.ticks, rows.len()), (None, 0, 0));
    }
}

/// The figures of the steady state between the first and the last row but `edge_s`.
fn figures(settings: &PowerSettings, rows: &[PowerRow], edge_s: f64) -> (PowerFigures, f64) {
    let start = rows[0].ts + edge_s;
    let end = rows[rows.len() - 1].ts - edge_s;
    let replay = ReplaySettings {
        agents: 8,
        window: Window {
            ramp_end_ms: Some(0.0),
            steady_start_ms: Some(start * 1e3),
            steady_end_ms: Some(end * 1e3),
        },
        ..ReplaySettings::default()
    };
    let request =
        RequestRow { phase: Phase::Steady, completion_tokens: Some(1000), ..RequestRow::default() };
    (replay_power(&Readings::of_rows(rows), &[request], &[], &replay, settings), end - start)
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.expect("a figure");
    assert!((found / expected - 1.0).abs() < 0.005, "{found} against {expected}");
}

#[test]
fn a_steady_power_gives_its_energy_and_what_it_served() {
    let config = PowerConfig {
        interval: Duration::from_millis(20),
        idle_baseline: Some(Duration::from_millis(100)),
        pue: Some(1.25),
        ..PowerConfig::new(PowerChoice::Constant { watts: 400.0 })
    };
    let (mut settings, _, rows) = sampled(config, pause);
    // A loaded machine may delay samples: their spacing is not what is tested.
    settings.interval_ms = 1e6;
    let (figures, length_s) = figures(&settings, &rows, 0.0);
    assert!(figures.valid, "{figures:?}");
    near(figures.energy_j, 500.0 * length_s);
    near(figures.mean_power_w, 500.0);
    near(figures.agents_per_mw, 8.0 / 500e-6);
    near(figures.joules_per_output_token, 0.5 * length_s);
    near(figures.devices[0].mean_power_w, 400.0);
    assert_eq!(figures.boundary, Some(agentbench::power::Boundary::Facility));
    assert_eq!(figures.method.as_deref(), Some("trapezoid"));
}

#[test]
fn steps_ramps_and_counters_have_their_known_integrals() {
    let settings = PowerSettings {
        source: Some("nvml".to_owned()),
        devices: vec!["GPU-0".to_owned()],
        interval_ms: 100.0,
        ..PowerSettings::default()
    };
    let row = |k: u32, power_w: f64, energy_j: Option<f64>| PowerRow {
        ts: f64::from(k) / 10.0,
        device: "GPU-0".to_owned(),
        power_w: Some(power_w),
        energy_j,
        ..PowerRow::default()
    };
    let ramp: Vec<_> = (0..=200).map(|k| row(k, 100.0 + f64::from(k), None)).collect();
    near(figures(&settings, &ramp, 0.0).0.energy_j, 4000.0);
    let step = |k| if k < 100 { 100.0 } else { 400.0 };
    let step: Vec<_> = (0..=200).map(|k| row(k, step(k), None)).collect();
    near(figures(&settings, &step, 0.0).0.energy_j, 5000.0);
    let counted: Vec<_> = (0..=200).map(|k| row(k, 300.0, Some(f64::from(k) * 29.9))).collect();
    let (counted, _) = figures(&settings, &counted, 0.0);
    near(counted.energy_j, 5980.0);
    assert_eq!(counted.method.as_deref(), Some("counter"));
}

#[test]
fn doubtful_samples_give_no_figure_but_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "");
    for (before, after, part) in [
        ("300000 300000 9000000\n", "300000 300000 5\n", "counter went back"),
        ("0 0 -1\n", "0 0 -1\n", "every power reading is 0"),
        ("300000 300000 -1\n", "-2 -2 -2\n", "readings cover"),
    ] {
        set(dir.path(), before);
        let (mut settings, stats, rows) = sampled(nvml(&library, None), || {
            pause();
            set(dir.path(), after);
            pause();
        });
        settings.interval_ms = 1e6;
        let (figures, _) = figures(&settings, &rows, 0.0);
        assert_eq!((figures.valid, figures.energy_j, figures.agents_per_mw), (false, None, None));
        assert!(figures.reason.as_ref().unwrap().contains(part), "{figures:?}");
        assert_eq!(stats.failed > 0, part == "readings cover");
    }
}

#[test]
fn a_dcgm_page_is_read_over_http() {
    let page = "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"GPU-a\"} 310.5\n\
        DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu=\"0\",UUID=\"GPU-a\"} 7000\n\
        DCGM_FI_DEV_POWER_USAGE{gpu=\"1\",UUID=\"GPU-b\"} 90\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1000) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let length = page.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all((head + page).as_bytes());
        }
    });
    let config = PowerConfig {
        gpus: GpuChoice { list: Some(vec!["GPU-a".to_owned()]), engine_pid: None },
        ..PowerConfig::new(PowerChoice::Dcgm { url })
    };
    let (settings, stats, rows) = sampled(config, pause);
    assert_eq!((settings.source.as_deref(), stats.failed), (Some("dcgm"), 0));
    assert_eq!(settings.rule.as_deref(), Some("named by the caller"));
    assert!(rows.iter().all(|row| row.device == "GPU-a"));
    assert_eq!((rows[0].power_w, rows[0].energy_j), (Some(310.5), Some(7.0)));
}
