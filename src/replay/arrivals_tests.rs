// Values are exact by construction.
#![allow(clippy::float_cmp)]

use super::*;

fn open(arrivals: &str, time_scale: f64) -> OpenLoop {
    OpenLoop { arrivals: arrivals.parse().unwrap(), time_scale, max_active: None }
}

#[track_caller]
fn check(arrivals: &str, time_scale: f64, starts_ms: &[f64], expected_ms: &[f64]) {
    let times = open(arrivals, time_scale).times_ms(starts_ms.to_vec(), None);
    let seen: Vec<f64> = times.take(expected_ms.len()).collect();
    assert_eq!(seen, expected_ms, "{arrivals} x {time_scale}");
}

#[test]
fn arrivals_are_due_at_absolute_times() {
    check("constant:2", 1.0, &[0.0], &[0.0, 500.0, 1000.0, 1500.0]);
    check("constant:0.5", 0.25, &[0.0], &[0.0, 500.0, 1000.0]);
    check("burst", 1.0, &[0.0, 70.0], &[0.0, 0.0, 0.0]);
    check("recorded", 1.0, &[0.0, 100.0, 600.0], &[0.0, 100.0, 600.0]);
    // The next pass begins a mean gap (300 ms) after the last arrival.
    check(
        "recorded",
        1.0,
        &[0.0, 100.0, 600.0],
        &[0.0, 100.0, 600.0, 900.0, 1000.0, 1500.0, 1800.0],
    );
    check("recorded", 10.0, &[0.0, 100.0, 600.0], &[0.0, 1000.0, 6000.0, 9000.0]);
}

#[test]
fn poisson_arrivals_have_the_rate_and_follow_from_the_seed() {
    let times = |seed, scale| -> Vec<f64> {
        open("poisson:4", scale).times_ms(vec![0.0], seed).take(20_000).collect()
    };
    let first = times(Some(7), 1.0);
    assert_eq!(first, times(Some(7), 1.0));
    assert_ne!(first, times(Some(8), 1.0));
    assert_eq!(times(None, 1.0), times(Some(0), 1.0));
    assert!(first.windows(2).all(|pair| pair[0] < pair[1]));
    let gaps: Vec<f64> = first.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((mean - 250.0).abs() < 5.0, "{mean}");
    // Of an exponential distribution the deviation is the mean.
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{}", variance.sqrt());
    let stretched = times(Some(7), 3.0);
    assert!(first.iter().zip(&stretched).all(|(one, three)| three / one - 3.0 < 1e-9));
}

#[test]
fn words_are_read_and_written() {
    for text in ["recorded", "burst", "poisson:0.5", "constant:12"] {
        assert_eq!(String::from(text.parse::<Arrivals>().unwrap()), text);
    }
    for (text, part) in [
        ("poisson", "none of recorded"),
        ("often", "none of recorded"),
        ("recorded:2", "none of recorded"),
        ("poisson:0", "no rate above 0"),
        ("constant:-1", "no rate above 0"),
        ("constant:nan", "no rate above 0"),
        ("poisson:inf", "no rate above 0"),
        ("poisson:", "no rate above 0"),
    ] {
        let error = text.parse::<Arrivals>().unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn contradictions_are_refused_with_a_remedy() {
    let given = PacingWords { arrivals: Some("poisson:1"), ..PacingWords::default() };
    let refused = [
        (PacingWords { time_scale: Some(2.0), ..PacingWords::default() }, "give arrivals with it"),
        (
            PacingWords { max_active: Some(2), ..PacingWords::default() },
            "max_active caps the open loop",
        ),
        (PacingWords { agents: Some(4), ..given }, "leave agents out, or cap them with max_active"),
        (PacingWords { ramp: true, ..given }, "ramp is the closed loop's"),
        (PacingWords { max_active: Some(0), ..given }, "0 agents send nothing"),
        (PacingWords { time_scale: Some(0.0), ..given }, "no factor above 0"),
        (PacingWords { time_scale: Some(f64::NAN), ..given }, "no factor above 0"),
        (PacingWords { arrivals: Some("recorded"), seed: true, ..given }, "a seed has nothing"),
        (PacingWords { arrivals: Some("burst"), time_scale: Some(2.0), ..given }, "all at once"),
        (PacingWords { arrivals: Some("often"), ..given }, "arrivals: \"often\""),
    ];
    for (words, part) in refused {
        let error = OpenLoop::of(words).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let closed = PacingWords { agents: Some(4), ramp: true, seed: true, ..PacingWords::default() };
    assert_eq!(OpenLoop::of(closed), Ok(None));
    let words = PacingWords { max_active: Some(3), seed: true, time_scale: Some(0.5), ..given };
    let expected = OpenLoop { max_active: Some(3), ..open("poisson:1", 0.5) };
    assert_eq!(OpenLoop::of(words), Ok(Some(expected)));
}

#[test]
fn arrivals_end_with_the_recording_or_with_time() {
    let starts = [0.0, 100.0, 600.0];
    for (arrivals, asked, timed, starts, expected) in [
        ("poisson:1", None, false, &starts[..], Ok(Some(3))),
        ("poisson:1", None, true, &starts[..], Ok(None)),
        ("poisson:1", Some(9), true, &starts[..], Ok(Some(9))),
        ("recorded", None, true, &starts[..], Ok(None)),
        ("recorded", Some(9), false, &starts[..], Ok(Some(9))),
        // What begins all at once would begin without an end.
        ("recorded", None, true, &[0.0, 0.0][..], Ok(Some(2))),
        ("burst", None, true, &starts[..], Ok(Some(3))),
        ("burst", Some(9), false, &starts[..], Ok(Some(9))),
        ("recorded", Some(3), false, &[0.0, 0.0][..], Err(())),
    ] {
        let seen = open(arrivals, 1.0).trajectories(asked, timed, starts).map_err(|_| ());
        assert_eq!(seen, expected, "{arrivals} {asked:?} {timed}");
    }
}

#[test]
fn a_seed_shuffles_every_pass_anew_and_leaves_out_nothing() {
    let pass = |seed, pass: u64| -> Vec<usize> {
        let mut order = SessionOrder::new(20, seed);
        (pass * 20..(pass + 1) * 20).map(|trajectory| order.session(trajectory)).collect()
    };
    let recorded: Vec<usize> = (0..20).collect();
    assert_eq!((pass(None, 0), pass(None, 3)), (recorded.clone(), recorded.clone()));
    for (seed, number) in [(0, 0), (0, 1), (7, 0), (7, 5)] {
        let order = pass(Some(seed), number);
        assert_ne!(order, recorded);
        assert_eq!(order, pass(Some(seed), number));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, recorded);
    }
    assert_ne!(pass(Some(7), 0), pass(Some(7), 1));
    assert_ne!(pass(Some(7), 0), pass(Some(8), 0));
    // The order of a pass does not hang on what was asked for before.
    let mut order = SessionOrder::new(20, Some(7));
    let late: Vec<usize> = (40..60).map(|trajectory| order.session(trajectory)).collect();
    assert_eq!(late, pass(Some(7), 2));
    assert_eq!(order.session(3), pass(Some(7), 0)[3]);
}
