//! What can go wrong between a caller and Postgres, named by what the caller can do about it.

/// A failed read or write. An outcome of a mutation (conflict, device taken, ...) is not an error: see [`crate::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; the same call may succeed later.
    #[error("database unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// The writer's queue is full; nothing was written.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The connection was lost while committing and did not come back in time: the write may or may not have happened.
    #[error("the commit may or may not have happened")]
    CommitUnknown,
    /// The process is shutting down; nothing was written.
    #[error("the writer has stopped")]
    Stopped,
    /// A row holds what this version cannot read, or a statement is wrong: a person must look.
    #[error("unexpected database answer: {0}")]
    Corrupt(String),
}

/// What the caller of a failed operation can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Try the same again after a pause.
    Retry,
    /// Read the current state first, then decide again.
    ReadAgain,
    /// A person must look.
    Report,
}

impl StoreError {
    /// What the caller can do.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Unavailable(_) | Self::Overloaded | Self::Stopped => Remedy::Retry,
            Self::CommitUnknown => Remedy::ReadAgain,
            Self::Corrupt(_) => Remedy::Report,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
                Self::Corrupt(error.to_string())
            }
            sqlx::Error::Database(ref db) if !is_passing(db.code().as_deref()) => Self::Corrupt(error.to_string()),
            other => Self::Unavailable(other),
        }
    }
}

/// SQLSTATEs that say "not now": lock or statement time-outs, shutdown, too many connections, serialization, lost connection.
pub(crate) fn is_passing(code: Option<&str>) -> bool {
    matches!(
        code,
        Some("55P03" | "57014" | "57P01" | "57P02" | "57P03" | "53300" | "53200" | "40001" | "40P01" | "25P03" | "58000")
    ) || code.is_some_and(|c| c.starts_with("08"))
}
