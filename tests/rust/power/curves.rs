//! Power that is known as a function of time, sampled in real time through the stub of the library.
//!
//! The stub stamps every sample with its clock and its counter is the curve's own integral, so a sample
//! that a busy machine took late shows as one and is left out: what remains has to fit within 0.5 %.

use agentbench::clock::unix_seconds;

use super::*;

/// A power of the stub as a function of the wall time, and what its counter shows.
struct Curve {
    power_w: Box<dyn Fn(f64) -> f64>,
    counted_j: Box<dyn Fn(f64) -> f64>,
}

impl Curve {
    fn energy_j(&self, start: f64, end: f64) -> f64 {
        (self.counted_j)(end) - (self.counted_j)(start)
    }

    /// The rows of a device that were taken at the time that they bear, within 2 ms.
    fn in_time(&self, rows: &[PowerRow], device: &str) -> Vec<PowerRow> {
        let mut kept = Vec::new();
        for row in rows.iter().filter(|row| row.device == device) {
            if let Some((power_w, device_ts)) = row.power_w.zip(row.device_ts) {
                let known_w = (self.power_w)(device_ts);
                assert!((power_w - known_w).abs() < 0.01, "{row:?}: {known_w} W");
            }
            let late_s = row.ts - row.device_ts.unwrap_or(row.ts);
            let counted_late_j =
                row.energy_j.map_or(0.0, |counted_j| counted_j - (self.counted_j)(row.ts));
            // The counter is read after the sample's time, in whole millijoules.
            assert!(counted_late_j > -0.01, "{row:?}: {counted_late_j} J");
            if late_s < 2e-3 && counted_late_j < 2e-3 * (self.power_w)(row.ts) {
                kept.push(row.clone());
            }
        }
        assert!(kept.len() >= 3, "{} of {} rows are in time", kept.len(), rows.len());
        kept
    }
}

fn wall() -> f64 {
    unix_seconds(Clock::start().now_ns())
}

fn micros(ts: f64) -> i64 {
    (ts * 1e6) as i64
}

fn steady(watts: f64) -> Curve {
    Curve {
        power_w: Box::new(move |_| watts),
        counted_j: Box::new(move |ts| watts * (ts % 100_000.0)),
    }
}

/// Samples a curve for a second and holds the figure against the curve's own integral.
fn check_curve(curve: &Curve, told: &str, counter: bool) {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), &format!("{told} {}\n", i32::from(counter)));
    let (mut settings, stats, rows) =
        sampled(nvml(&library, None), || std::thread::sleep(Duration::from_secs(1)));
    assert_eq!(stats.failed, 0);
    assert!(rows.iter().all(|row| row.energy_j.is_some() == counter));
    // A loaded machine may delay samples: their spacing is not what is tested.
    settings.interval_ms = 1e6;
    let rows = curve.in_time(&rows, "GPU-0");
    let (figures, _) = figures(&settings, &rows, 0.0);
    let method = if counter { "counter" } else { "trapezoid" };
    assert_eq!(figures.method.as_deref(), Some(method), "{figures:?}");
    near(figures.energy_j, curve.energy_j(rows[0].ts, rows[rows.len() - 1].ts));
}

#[test]
fn a_steady_power_has_its_integral() {
    for counter in [false, true] {
        check_curve(&steady(300.0), "steady 300000 290000", counter);
    }
}

#[test]
fn a_ramp_has_its_integral() {
    for counter in [false, true] {
        let from = wall();
        let curve = Curve {
            power_w: Box::new(move |ts| 200.0 + 40.0 * (ts - from)),
            counted_j: Box::new(move |ts| 1e6 + 200.0 * (ts - from) + 20.0 * (ts - from).powi(2)),
        };
        check_curve(&curve, &format!("ramp 200000 {} 40000", micros(from)), counter);
    }
}

#[test]
fn a_step_has_its_integral() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "");
    for counter in [false, true] {
        // A machine so busy that sampling begins after the step gives no step: then another one.
        let judged = (0..20).any(|_| check_step(dir.path(), &library, counter));
        assert!(judged, "no step was sampled in 20 tries");
    }
}

/// Whether the samples saw the step from both sides.
fn check_step(dir: &Path, library: &Path, counter: bool) -> bool {
    let at = wall() + 0.5;
    set(dir, &format!("step 100000 400000 {} {}\n", micros(at), i32::from(counter)));
    let config = PowerConfig { interval: Duration::from_millis(5), ..nvml(library, None) };
    let (mut settings, _, rows) = sampled(config, || std::thread::sleep(Duration::from_secs(1)));
    settings.interval_ms = 1e6;
    let curve = Curve {
        power_w: Box::new(move |ts| if ts < at { 100.0 } else { 400.0 }),
        counted_j: Box::new(move |ts| 1e6 + (ts - at) * if ts < at { 100.0 } else { 400.0 }),
    };
    // The value at the very microsecond of the step is either.
    let rows: Vec<_> =
        rows.into_iter().filter(|row| (row.device_ts.unwrap() - at).abs() > 2e-6).collect();
    let rows = curve.in_time(&rows, "GPU-0");
    let high = rows.partition_point(|row| row.power_w == Some(100.0));
    // Samples are 5 ms apart on an idle machine; a step in a wide gap is not in them.
    if high == 0 || high == rows.len() || rows[high].ts - rows[high - 1].ts > 8e-3 {
        return false;
    }
    let (figures, _) = figures(&settings, &rows, 0.0);
    let method = if counter { "counter" } else { "trapezoid" };
    assert_eq!(figures.method.as_deref(), Some(method), "{figures:?}");
    let expected = curve.energy_j(rows[0].ts, rows[rows.len() - 1].ts);
    // 300 W for half of the gap, 1.2 J, is within 0.5 % of 250 J.
    assert!(expected > 240.0 || rows[high].ts - rows[0].ts < 0.3, "{expected} J");
    let found = figures.energy_j.unwrap();
    let gap_j = 150.0 * (rows[high].ts - rows[high - 1].ts) + 300.0 * 2e-3;
    assert!((found - expected).abs() <= gap_j.max(0.005 * expected), "{found} against {expected}");
    (found / expected - 1.0).abs() < 0.005
}

#[test]
fn a_counter_without_power_and_a_power_without_counter_serve_alone() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "count 250000\nsteady 150000 150000 0\n");
    let (mut settings, stats, rows) =
        sampled(nvml(&library, None), || std::thread::sleep(Duration::from_secs(1)));
    assert_eq!(stats.failed, 0);
    settings.interval_ms = 1e6;
    assert!(rows.iter().all(|row| row.power_w.is_none() == (row.device == "GPU-0")));
    assert!(rows.iter().all(|row| row.energy_j.is_none() == (row.device == "GPU-1")));
    let mut in_time = steady(250.0).in_time(&rows, "GPU-0");
    in_time.extend(steady(150.0).in_time(&rows, "GPU-1"));
    in_time.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let (figures, length_s) = figures(&settings, &in_time, 0.0);
    let methods: Vec<_> = figures.devices.iter().map(|device| device.method.as_deref()).collect();
    assert_eq!(methods, [Some("counter"), Some("trapezoid")], "{figures:?}");
    assert_eq!(figures.method.as_deref(), Some("mixed"));
    near(figures.devices[0].mean_power_w, 250.0);
    near(figures.devices[1].mean_power_w, 150.0);
    near(figures.energy_j, 400.0 * length_s);
}

#[test]
fn the_engines_environment_chooses_its_gpus() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "1000 1000 -1\n2000 2000 -1\n3000 3000 -1\n");
    let with = |visible: Option<&str>| {
        let mut command = Command::new("sleep");
        command.arg("60").env_clear().env("PATH", "/usr/bin:/bin");
        command.envs(visible.map(|visible| ("CUDA_VISIBLE_DEVICES", visible)));
        command.spawn().unwrap()
    };
    for (visible, devices, rule) in [
        (Some("2,GPU-0"), vec!["GPU-0", "GPU-2"], "CUDA_VISIBLE_DEVICES of process"),
        (Some("MIG-x,MIG-y"), vec!["GPU-0"], "CUDA_VISIBLE_DEVICES of process"),
        (None, vec!["GPU-0", "GPU-1", "GPU-2"], "has no CUDA_VISIBLE_DEVICES"),
    ] {
        let mut engine = with(visible);
        let mut config = nvml(&library, None);
        config.gpus.engine_pid = Some(engine.id());
        let (settings, _, _) = sampled(config, || ());
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert_eq!(settings.devices, devices, "{visible:?}");
        assert!(settings.rule.as_ref().unwrap().contains(rule), "{settings:?}");
    }
    let mut config = nvml(&library, None);
    config.gpus.engine_pid = Some(u32::MAX);
    let (settings, _, _) = sampled(config, || ());
    assert!(settings.rule.as_ref().unwrap().contains("cannot be read"), "{settings:?}");
}

#[test]
fn idle_power_is_taken_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "60000 60000 -1\n");
    let config = PowerConfig {
        idle_baseline: Some(Duration::from_secs(1)),
        // Far from a gap on a busy machine.
        interval: Duration::from_millis(400),
        ..nvml(&library, None)
    };
    let (mut settings, _, rows) = sampled(config, || {
        set(dir.path(), "500000 500000 -1\n");
        std::thread::sleep(Duration::from_secs(1));
    });
    let idle = settings.idle.clone().unwrap();
    assert!((idle.end - idle.start - 1.0).abs() < 1e-6);
    if let Some(watts) = idle.mean_power_w["GPU-0"] {
        near(Some(watts), 60.0);
    } else {
        // Only samples that came late can be the reason: rows tell.
        let widest = rows.windows(2).map(|pair| pair[1].ts - pair[0].ts).fold(0.0, f64::max);
        let late = rows[0].ts - idle.start > 0.04;
        assert!(late || widest > 1.1, "no baseline, yet no gap: {rows:?}");
    }
    settings.interval_ms = 1e6;
    let loaded: Vec<_> = rows.iter().filter(|row| row.power_w == Some(500.0)).cloned().collect();
    assert!(loaded[0].ts > idle.end);
    let (figures, _) = figures(&settings, &loaded, 0.0);
    assert_eq!(figures.devices[0].idle_power_w, idle.mean_power_w["GPU-0"]);
    near(figures.mean_power_w, 500.0);
}

#[test]
fn a_device_that_comes_back_leaves_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "300000 300000 -1\n");
    let half_a_second = || std::thread::sleep(Duration::from_millis(500));
    let (settings, stats, rows) = sampled(nvml(&library, None), || {
        half_a_second();
        set(dir.path(), "-2 -2 -2\n");
        half_a_second();
        set(dir.path(), "300000 300000 -1\n");
        half_a_second();
    });
    assert!(stats.failed > 0 && stats.last_error.is_some(), "{stats:?}");
    let (figures, _) = figures(&settings, &rows, 0.0);
    assert!(figures.reason.as_ref().unwrap().contains("a gap of"), "{figures:?}");
    assert_eq!((figures.valid, figures.energy_j), (false, None));
}
