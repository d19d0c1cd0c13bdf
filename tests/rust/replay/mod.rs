//! Replays against an engine made of a script: what is sent, in which order, and what the rows say.
//! Times are compared with one another, never with a clock.

mod attempts;
mod cache_sharing;
mod faults;
mod limits;
mod live;
mod pacing;
pub(crate) mod recording;
mod sending;
mod simulated;
mod synthetic;
mod upstream;
pub(crate) mod watching;
