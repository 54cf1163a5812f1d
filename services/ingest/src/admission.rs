//! Admission: default, prepare, validate. What passed is `Admitted`, which nothing else can make. Pure: time and ids come in.

use std::sync::Arc;

use device_selectors::DeviceExpressions;
use resource_api::Uid;
use resource_api::defaults;
use resource_api::field_path::FieldError;
use resource_api::object::AnyObject;
use resource_api::prepare;
use resource_api::validation::{self, ValidationContext};
use resource_api::wire::Time;
use store::GatesAt;
use uuid::Uuid;

/// An object that may be stored.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    /// Without `metadata.resourceVersion`, which is not stored.
    object: AnyObject,
}

impl Admitted {
    fn new(mut object: AnyObject) -> Self {
        object.metadata_mut().resource_version = None;
        Self { object }
    }

    /// The object.
    pub(crate) fn object(&self) -> &AnyObject {
        &self.object
    }

    /// The object, given away.
    pub(crate) fn into_object(self) -> AnyObject {
        self.object
    }

    /// Its JSON as stored.
    pub(crate) fn body(&self) -> Arc<str> {
        // Every object type serializes: maps have text keys and numbers are finite.
        serde_json::to_string(&self.object).unwrap_or_default().into()
    }
}

/// What admission needs to know: the feature gates as they are at one position of the log.
#[derive(Clone)]
pub(crate) struct Admission {
    gates: GatesAt,
    expressions: Arc<DeviceExpressions>,
}

impl Admission {
    pub(crate) fn new(gates: GatesAt) -> Self {
        Self {
            gates,
            expressions: Arc::new(DeviceExpressions::new(device_selectors::Gates::from(&gates.gates))),
        }
    }

    /// The position that a mutation of what was admitted must name: it loses if gates were switched since.
    pub(crate) fn position(&self) -> u64 {
        self.gates.position
    }

    fn context(&self) -> ValidationContext<'_> {
        ValidationContext {
            expressions: self.expressions.as_ref(),
            gates: &self.gates.gates,
        }
    }

    /// A new object under this uid, or every rule that it breaks.
    pub(crate) fn create(&self, mut object: AnyObject, uid: Uuid, now: Time) -> Result<Admitted, Vec<FieldError>> {
        defaults::apply(&mut object, now);
        prepare::for_create(&mut object, &self.gates.gates);
        let metadata = object.metadata_mut();
        metadata.uid = Some(Uid(uid));
        metadata.creation_timestamp = Some(now);
        metadata.deletion_timestamp = None;
        let errors = validation::check_create(&object, &self.context());
        if errors.is_empty() {
            Ok(Admitted::new(object))
        } else {
            Err(errors)
        }
    }

    /// The new state of `old`, or every rule that the change breaks. Both must be of one kind.
    pub(crate) fn update(&self, mut object: AnyObject, old: &AnyObject, now: Time) -> Result<Admitted, Vec<FieldError>> {
        defaults::apply(&mut object, now);
        if prepare::for_update(&mut object, old, &self.gates.gates, now).is_err() {
            return Err(Vec::new());
        }
        Self::admitted(validation::check_update(&object, old, &self.context()), object)
    }

    /// The new state of `old` after a write of its status, or every rule that the change breaks. Both must be of one kind.
    pub(crate) fn update_status(&self, mut object: AnyObject, old: &AnyObject) -> Result<Admitted, Vec<FieldError>> {
        if prepare::for_status_update(&mut object, old, &self.gates.gates).is_err() {
            return Err(Vec::new());
        }
        Self::admitted(validation::check_status_update(&object, old), object)
    }

    fn admitted(errors: Option<Vec<FieldError>>, object: AnyObject) -> Result<Admitted, Vec<FieldError>> {
        match errors {
            Some(errors) if errors.is_empty() => Ok(Admitted::new(object)),
            Some(errors) => Err(errors),
            None => Err(Vec::new()),
        }
    }
}
