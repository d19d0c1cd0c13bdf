//! The one public error of the crate, grouped by what the user can do about it.
//!
//! A failed *request* is never an `Error`: it is a row with an outcome. An `Error` means that the
//! run itself cannot start or go on. Pure parsers have small error types of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Result of everything in this crate that can stop a run.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run cannot start or go on. Texts name the place and the remedy; a source is not repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong: the caller mends it and tries again.
    #[error("{0}")]
    Config(String),
    /// The address to listen on cannot be had.
    #[error(
        "cannot listen on {addr}: {source}; choose another address or end the program that holds it"
    )]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The engine (or whatever stands behind the proxy) cannot be used.
    #[error("{url}: {message}")]
    Upstream {
        /// The engine's address, without credentials or query.
        url: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// A run directory cannot be read.
    #[error("{}: {message}", path.display())]
    Trace {
        /// The run directory or the file in it.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A power or GPU source cannot be read.
    #[error("{0}")]
    Gpu(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// A defect of agentbench itself.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl Error {
    /// A wrong setting.
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config(message.into())
    }

    /// An engine that cannot be used.
    pub fn upstream(url: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Upstream { url: url.into(), message: message.into() }
    }

    /// A run directory that cannot be read.
    pub fn trace(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Trace { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// A refusal of the file system at `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), source }
    }
}
