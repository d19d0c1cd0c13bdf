//! A timeline in Chrome's trace-event format, which ui.perfetto.dev opens: sessions (of a replay: agents) as
//! processes, their conversations as tracks, turns and tools as slices, engine gauges and power as counters.
//!
//! Times are microseconds from the run's start. Prefill and decode lie within a turn where its first output
//! is known.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::lanes::lanes;
use super::sessions::{Columns, Session, Survey, Turn, each_session};
use super::tally::Tally;
use super::{Exported, TURNS};
use crate::clock::unix_seconds;
use crate::error::{Error, Result};
use crate::out_file::OutFile;
use crate::shutdown::Shutdown;
use crate::trace::record::{
    EngineSampleRow, PowerRow, RequestRow, RequestStatus, ToolCallRow, TrajectoryRow, TurnKind,
};
use crate::trace::{Run, Table};

/// The process of what belongs to no session: engine and devices.
const MACHINES: u64 = 1;
const REQUESTS: [&str; 17] = [
    "trajectory_id",
    "agent_id",
    "session_id",
    "turn",
    "due_at_ms",
    "sent_at_ms",
    "tool_wait_ms",
    "ttft_ms",
    "last_token_ms",
    "e2e_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "status",
    "error",
    "phase",
    "level",
];

/// An event of the format.
#[derive(Debug, Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u64,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    args: Value,
}

/// Writes the timeline of a run of any kind.
pub(super) fn export(run: &Run, out: &Path, shutdown: &Shutdown) -> Result<Exported> {
    let tables = [Table::Turns, Table::Requests, Table::EngineSamples, Table::Power];
    if !tables.iter().any(|table| run.has(*table)) {
        return Err(Error::config(format!(
            "run {} has nothing that a timeline shows: neither turns, requests, polls nor power",
            run.manifest().run_id
        )));
    }
    let survey = Survey::of(run, shutdown)?;
    let zero = zero(run, &survey)?;
    let mut timeline = Timeline {
        file: OutFile::create(out)?,
        tally: Tally::default(),
        zero,
        is_first: true,
        processes: MACHINES,
    };
    timeline.begin(run)?;
    each_session(run, &survey, Columns::default(), shutdown, |session| timeline.session(&session))?;
    timeline.requests(run, shutdown)?;
    timeline.counters(run, shutdown)?;
    timeline.finish()
}

/// When the timeline starts, seconds since the Unix epoch: a replay's clock, else what came first.
fn zero(run: &Run, survey: &Survey) -> Result<f64> {
    if run.has(Table::Requests) {
        return Ok(unix_seconds(run.manifest().clock_anchor_ns));
    }
    let sample = run.rows_of_columns::<EngineSampleRow>(&["ts"])?.next().transpose()?;
    let reading = run.rows_of_columns::<PowerRow>(&["ts"])?.next().transpose()?;
    let firsts = [survey.begun, sample.map(|row| row.ts), reading.map(|row| row.ts)];
    Ok(firsts.into_iter().flatten().min_by(f64::total_cmp).unwrap_or_default())
}

struct Timeline {
    file: OutFile,
    tally: Tally,
    zero: f64,
    is_first: bool,
    processes: u64,
}

impl Timeline {
    fn begin(&mut self, run: &Run) -> Result<()> {
        let about = json!({
            "run_id": run.manifest().run_id,
            "started_unix_s": self.zero,
            "exported_by": format!("agentbench {}", env!("CARGO_PKG_VERSION")),
        });
        self.file.write(br#"{"displayTimeUnit":"ms","otherData":"#)?;
        self.file.write(about.to_string().as_bytes())?;
        self.file.write(br#","traceEvents":["#)?;
        self.name("process_name", MACHINES, 0, "engine and devices")
    }

    fn finish(mut self) -> Result<Exported> {
        self.file.write(b"\n]}\n")?;
        let mut written = self.tally.written();
        written.insert("bytes", self.file.publish()?);
        Ok(Exported { written, left_out: self.tally.told(), notes: self.tally.notes() })
    }

    fn event(&mut self, event: &Event<'_>) -> Result<()> {
        self.file.write(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        self.file.write(&crate::out_file::json(event)?)
    }

    /// Names a process or a track.
    fn name(&mut self, what: &'static str, pid: u64, tid: u64, name: &str) -> Result<()> {
        let args = json!({"name": name});
        self.event(&Event {
            ph: "M",
            name: what,
            cat: None,
            ts: 0.0,
            dur: None,
            pid,
            tid,
            s: None,
            args,
        })
    }

    fn slice(
        &mut self,
        (pid, tid): (u64, u64),
        (name, cat): (&str, &'static str),
        (start, end): (f64, f64),
        args: Value,
    ) -> Result<()> {
        let (ts, dur) = (self.micros(start), Some((end - start).max(0.0) * 1e6));
        self.event(&Event { ph: "X", name, cat: Some(cat), ts, dur, pid, tid, s: None, args })
    }

    fn counter(&mut self, name: &str, time: f64, args: Value) -> Result<()> {
        let ts = self.micros(time);
        self.event(&Event {
            ph: "C",
            name,
            cat: None,
            ts,
            dur: None,
            pid: MACHINES,
            tid: 0,
            s: None,
            args,
        })
    }

    fn micros(&self, time: f64) -> f64 {
        ((time - self.zero) * 1e6).round()
    }

    fn process(&mut self, name: &str) -> Result<u64> {
        self.processes += 1;
        self.name("process_name", self.processes, 0, name)?;
        Ok(self.processes)
    }

    fn session(&mut self, session: &Session) -> Result<()> {
        let pid = self.process(&session.id)?;
        let mut tid = 0;
        for (place, thread) in session.threads.iter().enumerate() {
            tid += 1;
            let kind = match thread.kind {
                TurnKind::Main => "main",
                TurnKind::Subagent => "subagent",
                TurnKind::Utility => "utility",
            };
            let name = format!("{kind} {}", session.thread_name(place));
            self.name("thread_name", pid, tid, &name)?;
            for turn in &thread.turns {
                self.turn((pid, tid), turn)?;
            }
            let calls: Vec<&ToolCallRow> =
                thread.turns.iter().flat_map(|turn| &turn.calls).collect();
            tid += self.calls((pid, tid), &name, &calls)?;
        }
        Ok(())
    }

    fn turn(&mut self, track: (u64, u64), turn: &Turn) -> Result<()> {
        let row = &turn.row;
        let Some(start) = turn.request else {
            self.tally.left_out("turns whose time is not known");
            return Ok(());
        };
        self.tally.wrote(1, TURNS);
        let args = json!({
            "request_id": row.request_id, "model": row.model, "outcome": row.outcome, "isl": row.isl,
            "isl_cached": row.isl_cached, "osl": row.osl, "ttft_ms": row.ttft_ms,
            "tool_exec_ms": row.tool_exec_ms, "stop_reason": row.stop_reason, "error": row.error,
        });
        let name = format!("turn {}", row.turn);
        let Some(end) = turn.end() else {
            let ts = self.micros(start);
            let (pid, tid) = track;
            let (cat, s) = (Some("turn"), Some("t"));
            return self.event(&Event {
                ph: "i",
                name: &name,
                cat,
                ts,
                dur: None,
                pid,
                tid,
                s,
                args,
            });
        };
        self.slice(track, (&name, "turn"), (start, end), args)?;
        self.phases(track, start, turn.first_output(), end)
    }

    /// Time to the first output and from there, within a slice.
    fn phases(
        &mut self,
        track: (u64, u64),
        start: f64,
        first: Option<f64>,
        end: f64,
    ) -> Result<()> {
        let Some(first) = first.filter(|first| *first <= end) else { return Ok(()) };
        self.slice(track, ("to first token", "phase"), (start, first), Value::Null)?;
        self.slice(track, ("decode", "phase"), (first, end), Value::Null)
    }

    /// Tools of a thread, on as many tracks below it as run at once; gives how many.
    fn calls(
        &mut self,
        (pid, tid): (u64, u64),
        thread: &str,
        calls: &[&ToolCallRow],
    ) -> Result<u64> {
        let span = |call: &&ToolCallRow| {
            let end = call.result_time.or_else(|| Some(call.emitted_time + call.wire_ms? / 1e3))?;
            (call.emitted_time != 0.0).then_some((call.emitted_time, end))
        };
        let timed: Vec<(&ToolCallRow, (f64, f64))> =
            calls.iter().filter_map(|call| Some((*call, span(call)?))).collect();
        for _ in timed.len()..calls.len() {
            self.tally.left_out("tool calls whose times are not known");
        }
        let spans: Vec<(f64, f64)> = timed.iter().map(|(_, span)| *span).collect();
        let lanes = lanes(&spans);
        let n_lanes = lanes.iter().max().map_or(0, |last| last + 1) as u64;
        for lane in 1..=n_lanes {
            self.name("thread_name", pid, tid + lane, &format!("{thread}: tools {lane}"))?;
        }
        for ((call, span), lane) in timed.into_iter().zip(lanes) {
            let args = json!({
                "call_id": call.call_id, "own_ms": call.own_ms, "argument_bytes": call.argument_bytes,
                "result_bytes": call.result_bytes, "is_error": call.is_error,
            });
            self.slice((pid, tid + 1 + lane as u64), (&call.name, "tool"), span, args)?;
            self.tally.wrote(1, "tool_calls");
        }
        Ok(n_lanes)
    }

    /// What a replay sent: a process for each agent, its requests side by side where they overlap.
    fn requests(&mut self, run: &Run, shutdown: &Shutdown) -> Result<()> {
        let mut spans: HashMap<u32, Vec<(f64, f64)>> = HashMap::new();
        for request in run.rows_of_columns::<RequestRow>(&["agent_id", "sent_at_ms", "e2e_ms"])? {
            let request = request?;
            let end_ms = request.sent_at_ms + request.e2e_ms.unwrap_or_default();
            spans.entry(request.agent_id).or_default().push((request.sent_at_ms, end_ms));
        }
        let mut agents: Vec<u32> = spans.keys().copied().collect();
        agents.sort_unstable();
        let mut lanes_of: HashMap<u32, std::vec::IntoIter<usize>> = HashMap::new();
        let mut pids: HashMap<u32, u64> = HashMap::new();
        for agent in agents {
            let pid = self.process(&format!("agent {agent}"))?;
            pids.insert(agent, pid);
            self.name("thread_name", pid, 0, "trajectories")?;
            let lanes = lanes(&spans.remove(&agent).unwrap_or_default());
            for lane in lanes.iter().copied().collect::<HashSet<usize>>() {
                self.name("thread_name", pid, 1 + lane as u64, &format!("requests {}", lane + 1))?;
            }
            lanes_of.insert(agent, lanes.into_iter());
        }
        for request in run.rows_of_columns::<RequestRow>(&REQUESTS)? {
            if shutdown.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let request = request?;
            let lane = lanes_of.get_mut(&request.agent_id).and_then(Iterator::next).unwrap_or(0);
            let pid = pids.get(&request.agent_id).copied().unwrap_or(MACHINES);
            self.request((pid, 1 + lane as u64), &request)?;
        }
        self.trajectories(run, &pids)
    }

    fn request(&mut self, track: (u64, u64), request: &RequestRow) -> Result<()> {
        let wall = |run_ms: f64| self.zero + run_ms / 1e3;
        let start = wall(request.sent_at_ms);
        let after = |ms: Option<f64>| ms.map(|ms| start + ms / 1e3);
        let end = after(request.e2e_ms).unwrap_or(start);
        let failed = if request.status == RequestStatus::Ok { "" } else { " (not answered)" };
        let name = format!("turn {}{failed}", request.turn);
        let args = json!({
            "session_id": request.session_id, "trajectory_id": request.trajectory_id, "phase": request.phase,
            "level": request.level, "status": request.status, "error": request.error,
            "prompt_tokens": request.prompt_tokens, "cached_tokens": request.cached_tokens,
            "completion_tokens": request.completion_tokens, "ttft_ms": request.ttft_ms,
            "tool_wait_ms": request.tool_wait_ms, "due_at_ms": request.due_at_ms,
        });
        let first = after(request.ttft_ms);
        self.tally.wrote(1, "requests");
        self.slice(track, (&name, "request"), (start, end), args)?;
        self.phases(track, start, first, end)
    }

    fn trajectories(&mut self, run: &Run, pids: &HashMap<u32, u64>) -> Result<()> {
        for row in run.rows::<TrajectoryRow>()? {
            let row = row?;
            let (Some(end_ms), Some(pid)) = (row.end_ms, pids.get(&row.agent_id)) else { continue };
            let span = (self.zero + row.start_ms / 1e3, self.zero + end_ms / 1e3);
            let args = json!({
                "trajectory_id": row.trajectory_id, "n_sent": row.n_sent, "n_failed": row.n_failed,
                "completed": row.completed, "level": row.level,
            });
            self.slice((*pid, 0), (&row.session_id, "trajectory"), span, args)?;
            self.tally.wrote(1, "trajectories");
        }
        Ok(())
    }

    fn counters(&mut self, run: &Run, shutdown: &Shutdown) -> Result<()> {
        for sample in run.rows::<EngineSampleRow>()? {
            if shutdown.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let sample = sample?;
            let engine = &sample.engine;
            for (name, value) in [
                ("requests running", sample.running),
                ("requests waiting", sample.waiting),
                ("KV cache in use, %", sample.kv_cache_usage_pct),
            ] {
                if let Some(value) = value {
                    self.counter(&format!("{engine}: {name}"), sample.ts, json!({"value": value}))?;
                    self.tally.wrote(1, "engine_values");
                }
            }
        }
        for reading in run.rows::<PowerRow>()? {
            let reading = reading?;
            if let Some(watts) = reading.power_w.or(reading.power_avg_w) {
                let name = format!("{} {}: power, W", reading.source, reading.device);
                self.counter(&name, reading.ts, json!({"value": watts}))?;
                self.tally.wrote(1, "power_values");
            }
        }
        Ok(())
    }
}
