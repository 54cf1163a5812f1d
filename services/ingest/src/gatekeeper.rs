//! Which admission is in force. It changes with the feature gates, which the log tells; a write that was refused because they changed asks
//! the database at once.

use std::sync::{Arc, PoisonError, RwLock};

use store::{EventRow, GatesAt, Operation, Store, StoreError};

use crate::admission::Admission;

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub(crate) struct Gatekeeper(Arc<RwLock<Admission>>);

impl Gatekeeper {
    pub(crate) fn new(gates: GatesAt) -> Self {
        Self(Arc::new(RwLock::new(Admission::new(gates))))
    }

    /// Admission as it is now, for one request.
    pub(crate) fn admission(&self) -> Admission {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An event of the gates' kind. One that is older than what is known changes nothing.
    pub(crate) fn on_event(&self, event: &EventRow) {
        let switched = match event.operation {
            Operation::Deleted => Ok(GatesAt {
                position: event.sequence,
                ..GatesAt::default()
            }),
            Operation::Added | Operation::Modified => GatesAt::read(&event.body, event.sequence),
        };
        match switched {
            Ok(switched) => self.switch(switched),
            Err(error) => tracing::error!(sequence = event.sequence, %error, "the feature gates cannot be read"),
        }
    }

    /// Reads the gates that are in force.
    pub(crate) async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        self.switch(store.gates().await?);
        Ok(())
    }

    fn switch(&self, switched: GatesAt) {
        let mut admission = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if switched.position > admission.position() {
            tracing::info!(position = switched.position, gates = ?switched.gates, "feature gates switched");
            *admission = Admission::new(switched);
        }
    }
}
