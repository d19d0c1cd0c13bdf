//! What is exported and imported again is what was there, as far as the format can hold it.
//!
//! Runs are drawn at random; what comes back is compared turn by turn, thread by thread, up to the names that
//! formats give.

mod around;
mod blocks;
mod counts;
mod drawn;
mod left_out;
mod texts;
