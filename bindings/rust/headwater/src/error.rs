//! What can go wrong, as the C library says it.
#![forbid(unsafe_code)]

use std::fmt;

use headwater_sys as sys;

/// What kind of fault an [`Error`] is: one for each `hw_status` that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Memory ran out; the message says what it was for.
    NoMemory,
    /// A value that the caller passed.
    BadArgument,
    /// Data handed to a builder.
    BadSource,
    /// A store that is missing, truncated, damaged, or of another version.
    BadStore,
    /// A task cannot do what was asked, for example because a split has no seeds.
    BadTask,
    /// The operating system refused; the message has its reason.
    Io,
    /// Nothing came within the time that the caller gave.
    TimedOut,
    /// The sampler was shut down.
    ShutDown,
    /// A sampler was used in a process that was forked after it was opened.
    Forked,
    /// A status of a newer library, by its number.
    Other(u32),
}

/// An error of the library: its kind, and a message for people that names what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For crates that build on this one.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// Which kind of fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message; that of C has at most 500 bytes.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn bad_argument(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadArgument, message)
    }

    /// Of any status but HW_OK and HW_END.
    pub(crate) fn of_status(status: sys::hw_status, message: String) -> Error {
        let kind = match status {
            sys::HW_NO_MEMORY => ErrorKind::NoMemory,
            sys::HW_BAD_ARGUMENT => ErrorKind::BadArgument,
            sys::HW_BAD_SOURCE => ErrorKind::BadSource,
            sys::HW_BAD_STORE => ErrorKind::BadStore,
            sys::HW_BAD_TASK => ErrorKind::BadTask,
            sys::HW_IO => ErrorKind::Io,
            sys::HW_TIMED_OUT => ErrorKind::TimedOut,
            sys::HW_SHUT_DOWN => ErrorKind::ShutDown,
            sys::HW_FORKED => ErrorKind::Forked,
            other => ErrorKind::Other(other),
        };
        Error::new(kind, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
