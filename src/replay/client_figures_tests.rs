// Values are exact by construction.
#![allow(clippy::float_cmp)]

use super::*;

/// A second of ticks at each of the lags, as rows a second apart; half the CPU of one core is used.
fn samples(lags_ms: &[f64]) -> Vec<ClientSampleRow> {
    let row = |second: usize, timer_lag_ms| ClientSampleRow {
        ts: second as f64,
        cpu_s: Some(second as f64 * 0.5),
        cores: Some(2),
        timer_lag_ms,
        open_sockets: Some(10 + second as u64),
        open_files: Some(100),
        open_files_limit: Some(1000),
        ..ClientSampleRow::default()
    };
    let mut rows = vec![row(0, Vec::new())];
    rows.extend(lags_ms.iter().enumerate().map(|(at, lag_ms)| row(at + 1, vec![*lag_ms; 100])));
    rows
}

fn requests(n: usize, ttft_ms: f64, tpot_ms: f64, lag_ms: f64) -> Vec<RequestRow> {
    let row = RequestRow {
        ttft_ms: Some(ttft_ms),
        tpot_ms: Some(tpot_ms),
        lag_ms,
        sent_at_ms: 5000.0,
        trajectory_id: "t".into(),
        ..RequestRow::default()
    };
    vec![row; n]
}

fn figures(samples: &[ClientSampleRow], requests: &[RequestRow]) -> ClientFigures {
    client_figures(&Watched {
        samples,
        requests,
        trajectories: &[],
        window: Window::default(),
        anchor_ns: 0,
        engine_in_process: Some(false),
    })
}

/// Ten seconds of so much timer lag each, and 30 requests.
#[track_caller]
fn check(lags_ms: [f64; 10], ttft_ms: f64, tpot_ms: f64, send_lag_ms: f64, reasons: &[&str]) {
    let requests = requests(30, ttft_ms, tpot_ms, send_lag_ms);
    let seen = figures(&samples(&lags_ms), &requests);
    assert_eq!(seen.reasons, reasons);
    assert_eq!(seen.limited, Some(!reasons.is_empty()));
    assert_eq!(seen.headline().is_some(), !reasons.is_empty());
}

#[test]
fn lateness_is_held_against_what_is_measured() {
    let late = |n: usize, lag_ms: f64| -> [f64; 10] {
        std::array::from_fn(|at| if at < n { lag_ms } else { 1.0 })
    };
    check(late(0, 0.0), 2000.0, 200.0, 2.0, &[]);
    // A busy machine, a fast engine: the floor.
    check(late(10, 19.0), 20.0, 5.0, 19.0, &[]);
    check(late(10, 21.0), 20.0, 5.0, 2.0, &["timers late by p90 21 ms (limit 20 ms)"]);
    // A tenth of the median TTFT, a whole median TPOT: whichever is less.
    check(late(10, 99.0), 1000.0, 200.0, 2.0, &[]);
    check(late(10, 101.0), 1000.0, 200.0, 2.0, &["timers late by p90 101 ms (limit 100 ms)"]);
    check(late(10, 51.0), 1000.0, 50.0, 2.0, &["timers late by p90 51 ms (limit 50 ms)"]);
    // A second of ten: less than a tenth of the moments is no bottleneck, more is.
    check(late(1, 500.0), 1000.0, 200.0, 2.0, &[]);
    check(late(2, 500.0), 1000.0, 200.0, 2.0, &["timers late by p90 500 ms (limit 100 ms)"]);
    check(late(0, 0.0), 1000.0, 50.0, 80.0, &["sends late by p90 80 ms (limit 50 ms)"]);
}

#[test]
fn stalls_that_bend_only_the_last_percentiles_are_noted() {
    let mut lags = [1.0; 10];
    lags[3] = 300.0;
    let seen = figures(&samples(&lags), &requests(30, 1000.0, 50.0, 2.0));
    assert_eq!((seen.limited, seen.headline()), (Some(false), None));
    assert!(seen.note().unwrap().contains("late by 300 ms in 1 of 100 moments"));
    assert_eq!(figures(&samples(&[1.0; 10]), &requests(30, 1000.0, 50.0, 2.0)).note(), None);
}

#[test]
fn cpu_counts_only_where_it_is_the_clients_own() {
    let mut busy = samples(&[1.0; 10]);
    for row in &mut busy {
        row.cpu_s = Some(row.ts * 1.9);
    }
    let requests = requests(30, 1000.0, 50.0, 2.0);
    let judged = |samples: &[ClientSampleRow], engine_in_process| {
        client_figures(&Watched {
            samples,
            requests: &requests,
            trajectories: &[],
            window: Window::default(),
            anchor_ns: 0,
            engine_in_process,
        })
    };
    let own = judged(&busy, Some(false));
    assert_eq!(own.reasons, ["its CPU at 95 % of 2 core(s) (limit 90 %)"]);
    for shared in [Some(true), None] {
        let seen = judged(&busy, shared);
        assert_eq!((seen.limited, seen.engine_in_process), (Some(false), shared));
        assert!((seen.cpu_pct.unwrap() - 95.0).abs() < 1e-9);
    }
    let idle = judged(&samples(&[1.0; 10]), Some(false));
    assert_eq!((idle.limited, idle.cpu_cores, idle.cpu_pct), (Some(false), Some(0.5), Some(25.0)));
}

#[test]
fn open_files_count_against_their_limit() {
    let mut rows = samples(&[1.0; 10]);
    assert_eq!(figures(&rows, &[]).open_sockets, Some(20));
    assert_eq!(figures(&rows, &[]).open_files_pct, Some(10.0));
    rows[4].open_files = Some(950);
    let seen = figures(&rows, &[]);
    assert_eq!(seen.limited, Some(true));
    assert!(seen.reasons[0].starts_with("95 % of the files"), "{:?}", seen.reasons);
}

#[test]
fn what_is_too_short_is_not_judged() {
    let mut rows = samples(&[500.0, 500.0]);
    rows[2].timer_lag_ms.truncate(LEAST_TICKS - 101);
    let seen = figures(&rows, &requests(30, 100.0, 10.0, 500.0));
    assert_eq!((seen.limited, seen.timer_lag_ms, seen.headline()), (None, None, None));
    assert_eq!(figures(&samples(&[500.0, 500.0]), &[]).limited, Some(true));
    assert_eq!(figures(&[], &[]).limited, None);
    // Too few sends say nothing either.
    let few = requests(19, 100.0, 10.0, 500.0);
    assert_eq!(figures(&samples(&[1.0; 10]), &few).limited, Some(false));
}

#[test]
fn the_steady_state_is_judged_where_it_is_long_enough() {
    // The first five seconds, the ramp, are late.
    let rows = samples(&[900.0, 900.0, 900.0, 900.0, 900.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let judged = |start_ms, end_ms| {
        let window = Window {
            ramp_end_ms: None,
            steady_start_ms: Some(start_ms),
            steady_end_ms: Some(end_ms),
        };
        client_figures(&Watched {
            samples: &rows,
            requests: &[],
            trajectories: &[],
            window,
            anchor_ns: 0,
            engine_in_process: Some(false),
        })
    };
    let steady = judged(5500.0, 9500.0);
    assert_eq!((steady.part.as_str(), steady.limited), ("steady", Some(false)));
    // Sampled at 6, 7, 8 and 9 s, with 5 s as the base of differences, whose ticks lie before.
    assert_eq!(steady.timer_lag_ms.unwrap().n, 400);
    let short = judged(5200.0, 5800.0);
    assert_eq!((short.part.as_str(), short.limited), ("whole", Some(true)));
    let early = judged(500.0, 4500.0);
    assert_eq!((early.part.as_str(), early.limited), ("steady", Some(true)));
}

#[test]
fn a_wait_for_a_place_is_no_lateness_of_the_client() {
    let rows = requests(30, 1000.0, 50.0, 4000.0);
    let trajectory = |admission_wait_ms| TrajectoryRow {
        trajectory_id: "t".into(),
        start_ms: 4997.0,
        admission_wait_ms,
        ..TrajectoryRow::default()
    };
    let judged = |trajectory: TrajectoryRow| {
        client_figures(&Watched {
            samples: &samples(&[1.0; 10]),
            requests: &rows,
            trajectories: &[trajectory],
            window: Window::default(),
            anchor_ns: 0,
            engine_in_process: Some(false),
        })
    };
    let waited = judged(trajectory(Some(3900.0)));
    assert_eq!((waited.limited, waited.send_lag_ms.unwrap().max), (Some(false), 3.0));
    assert_eq!(judged(trajectory(None)).limited, Some(true));
}

#[test]
fn a_level_of_a_limited_client_is_invalid() {
    let passed = LevelRow { verdict: "pass".into(), agents: 8, ..LevelRow::default() };
    let client = |limited, reasons: &[&str]| ClientFigures {
        limited,
        reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        ..ClientFigures::default()
    };
    let row = with_client(passed.clone(), &client(Some(true), &["timers late", "sends late"]));
    assert_eq!((row.verdict.as_str(), row.client_limited), ("invalid", Some(true)));
    assert_eq!(row.reason.as_deref(), Some("client-limited: timers late; sends late"));
    assert!(limited_search(&row).starts_with("no result: at 8 agents the client, not the engine"));
    for limited in [Some(false), None] {
        let row = with_client(passed.clone(), &client(limited, &[]));
        assert_eq!((row.verdict.as_str(), row.client_limited, row.reason), ("pass", limited, None));
    }
}

#[test]
fn each_worker_is_judged_alone() {
    let of = |worker, lag_ms: f64| {
        samples(&[lag_ms; 10])
            .into_iter()
            .map(move |row| ClientSampleRow { worker: Some(worker), ..row })
    };
    // As they come in: mixed.
    let mut rows: Vec<ClientSampleRow> =
        of(0, 1.0).chain(of(1, 300.0)).chain(of(2, 30.0)).collect();
    rows.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let of_all: Vec<RequestRow> = (0..3)
        .flat_map(|worker| {
            requests(30, 1000.0, 200.0, 2.0)
                .into_iter()
                .map(move |row| RequestRow { worker: Some(worker), ..row })
        })
        .collect();
    let seen = figures(&rows, &of_all);
    assert_eq!((seen.worker, seen.limited, seen.cpu_cores), (Some(1), Some(true), Some(0.5)));
    assert_eq!(seen.reasons, ["worker 1: timers late by p90 300 ms (limit 100 ms)"]);
    rows.retain(|row| row.worker != Some(1));
    let seen = figures(&rows, &of_all);
    assert_eq!((seen.worker, seen.limited), (Some(2), Some(false)));
}

#[test]
fn with_the_engine_in_the_same_process_only_what_no_busy_machine_explains_counts() {
    let judged = |lag_ms, engine_in_process| {
        client_figures(&Watched {
            samples: &samples(&[lag_ms; 10]),
            requests: &requests(30, 20.0, 5.0, 2.0),
            trajectories: &[],
            window: Window::default(),
            anchor_ns: 0,
            engine_in_process: Some(engine_in_process),
        })
        .limited
    };
    assert_eq!((judged(99.0, true), judged(99.0, false)), (Some(false), Some(true)));
    assert_eq!(judged(101.0, true), Some(true));
}
