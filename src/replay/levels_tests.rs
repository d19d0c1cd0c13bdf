use super::*;

fn request(agent: u32, ttft: f64) -> RequestRow {
    RequestRow {
        agent_id: agent,
        phase: Phase::Steady,
        ttft_ms: Some(ttft),
        completion_tokens: Some(50),
        ..RequestRow::default()
    }
}

fn trajectory(agent: u32, end_ms: f64) -> TrajectoryRow {
    TrajectoryRow {
        agent_id: agent,
        completed: true,
        end_ms: Some(end_ms),
        ..TrajectoryRow::default()
    }
}

const MINIMUM: LevelMinimum = LevelMinimum {
    trajectories: 4,
    trajectories_per_agent: 1,
    requests_per_agent: 2,
    steady_s: 10.0,
};

struct Case {
    requests: Vec<RequestRow>,
    trajectories: Vec<TrajectoryRow>,
    window: Window,
}

impl Case {
    /// Two agents of three requests each and two trajectories each, ten seconds of steady state.
    fn good() -> Self {
        let requests = [0, 1].iter().flat_map(|agent| vec![request(*agent, 100.0); 3]).collect();
        let trajectories =
            [0, 1].iter().flat_map(|agent| vec![trajectory(*agent, 5e3); 2]).collect();
        let window = Window {
            ramp_end_ms: Some(0.0),
            steady_start_ms: Some(1e3),
            steady_end_ms: Some(11e3),
        };
        Self { requests, trajectories, window }
    }

    fn judge(&self, conditions: &[&str]) -> LevelRow {
        let conditions: Vec<Condition> =
            conditions.iter().map(|text| text.parse().unwrap()).collect();
        let level = Level {
            level: 3,
            agents: 2,
            window: self.window,
            requests: &self.requests,
            trajectories: &self.trajectories,
        };
        judge(&level, &conditions, &MINIMUM)
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Case), verdict: &str, reason: &str) {
    let mut case = Case::good();
    change(&mut case);
    let row = case.judge(&["ttft.p95<=1s", "errors<=1"]);
    assert_eq!(row.verdict, verdict, "{row:?}");
    assert!(row.reason.as_deref().unwrap_or_default().contains(reason), "{row:?}");
}

#[test]
fn verdicts() {
    check(|_| {}, "pass", "");
    check(|case| case.requests[0].ttft_ms = Some(9e3), "fail", "ttft.p95<=1s is missed");
    check(
        |case| case.requests[0].status = RequestStatus::Failed,
        "fail",
        "too many requests failed",
    );
    // What was sent outside steady state, or cut off, is not judged.
    check(
        |case| case.requests.push(RequestRow { phase: Phase::Tail, ..request(0, 9e9) }),
        "pass",
        "",
    );
    check(
        |case| {
            case.requests.push(RequestRow { status: RequestStatus::Cancelled, ..request(0, 9e9) });
        },
        "pass",
        "",
    );
    check(|case| case.requests.retain(|row| row.agent_id == 0), "invalid", "agent 1 sent 0");
    check(|case| case.requests.truncate(4), "invalid", "agent 1 sent 1");
    check(|case| case.trajectories.truncate(3), "invalid", "3 trajectories, 4");
    check(
        |case| case.trajectories.iter_mut().for_each(|row| row.agent_id = 0),
        "invalid",
        "ended 0",
    );
    check(|case| case.trajectories[0].completed = false, "invalid", "3 trajectories, 4");
    check(|case| case.window.steady_end_ms = Some(6e3), "invalid", "5.0 s of steady state");
    check(|case| case.window.steady_start_ms = None, "invalid", "no steady state");
    check(
        |case| case.requests.iter_mut().for_each(|row| row.ttft_ms = None),
        "invalid",
        "no request",
    );
    // A violation that enough requests show counts even where time falls short.
    check(
        |case| {
            case.window.steady_end_ms = Some(6e3);
            case.requests[0].ttft_ms = Some(9e3);
        },
        "fail",
        "is missed",
    );
    // A trajectory that a failure ended is a sample.
    check(
        |case| {
            case.trajectories[0].completed = false;
            case.trajectories[0].n_failed = 1;
        },
        "pass",
        "",
    );
}

#[test]
fn agents_are_held_to_the_service_level_alone_too() {
    let mut case = Case::good();
    for row in case.requests.iter_mut().filter(|row| row.agent_id == 1) {
        row.ttft_ms = Some(1500.0);
    }
    let row = case.judge(&["ttft.p25<=1s"]);
    // Pooled it holds; agent 1 alone does not.
    assert_eq!(row.verdict, "pass");
    assert_eq!((row.agents_within_pct, row.worst_agent), (Some(50.0), Some(1)));
    assert_eq!(row.worst_agent_values.as_deref(), Some(r#"{"ttft.p25<=1s":1500.0}"#));
    assert_eq!(row.values, r#"{"ttft.p25<=1s":100.0}"#);
}

#[test]
fn a_level_row_counts_what_was_judged() {
    let mut case = Case::good();
    case.trajectories[0].end_ms = Some(12e3);
    case.requests.push(RequestRow { status: RequestStatus::Failed, ..request(1, 1.0) });
    let row = case.judge(&["errors<=1"]);
    assert_eq!((row.level, row.agents), (3, 2));
    assert_eq!((row.n_requests, row.n_failed), (7, 1));
    assert_eq!((row.n_trajectories, row.n_steady_trajectories), (4, 3));
    assert_eq!(row.output_tokens_per_s, Some(30.0));
    assert_eq!((row.start_ms, row.end_ms), (Some(1e3), Some(11e3)));
}

#[test]
fn a_level_says_that_its_speed_is_overstated() {
    // Of a response of 2 s, tokens are seen in the first 1.7 s.
    let judge = |last_token_ms: f64, slo: &str| {
        let mut case = Case::good();
        for row in &mut case.requests {
            row.e2e_ms = Some(2000.0);
            row.last_token_ms = Some(last_token_ms);
        }
        let row = case.judge(&[slo]);
        assert_eq!(row.verdict, "pass", "{row:?}");
        (row.unseen_output_pct, row.speed_overstated)
    };
    assert_eq!(judge(1700.0, "speed.p25>=20"), (Some(15.0), Some(true)));
    assert_eq!(judge(1900.0, "speed.p25>=20"), (Some(5.0), Some(false)));
    // Conditions that look at neither speed nor TPOT are judged by what they see.
    assert_eq!(judge(1700.0, "ttft.p95<=1s"), (Some(15.0), None));
    let row = Case::good().judge(&["ttft.p95<=1s"]);
    assert_eq!((row.unseen_output_pct, row.speed_overstated), (None, None));
}
