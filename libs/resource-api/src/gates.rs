//! Feature gates that guard fields of this API, with the defaults of Kubernetes v1.37.

use std::fmt;
use std::str::FromStr;

macro_rules! gates {
    ($($(#[$doc:meta])* $name:ident $default:ident $lock:ident [$($needs:ident),*]),+ $(,)?) => {
        /// A feature that can be switched on or off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Gate { $($(#[$doc])* $name),+ }

        impl Gate {
            /// Every gate.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The gate's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }
            /// On without being asked.
            pub const fn is_on_by_default(self) -> bool {
                match self { $(Self::$name => gates!(@is_on $default)),+ }
            }
            /// Cannot be switched.
            pub const fn is_locked(self) -> bool {
                match self { $(Self::$name => gates!(@is_locked $lock)),+ }
            }
            /// Gates that must be on for this one to be on.
            pub const fn needs(self) -> &'static [Self] {
                match self { $(Self::$name => &[$(Self::$needs),*]),+ }
            }
        }
    };
    (@is_on on) => { true };
    (@is_on off) => { false };
    (@is_locked locked) => { true };
    (@is_locked free) => { false };
}

gates! {
    /// KEP-4381.
    DynamicResourceAllocation on locked [],
    /// KEP-5018.
    DRAAdminAccess on locked [DynamicResourceAllocation],
    /// KEP-5075.
    DRAConsumableCapacity on free [DynamicResourceAllocation],
    /// KEP-6080.
    DRADerivedAttributes off free [DynamicResourceAllocation],
    /// KEP-5007.
    DRADeviceBindingConditions on free [DynamicResourceAllocation, DRAResourceClaimDeviceStatus],
    /// KEP-5963.
    DRADeviceCompatibilityGroups off free [DynamicResourceAllocation, DRAPartitionableDevices],
    /// KEP-5055.
    DRADeviceTaintRules on free [DynamicResourceAllocation, DRADeviceTaints],
    /// KEP-5055.
    DRADeviceTaints on free [DynamicResourceAllocation],
    /// KEP-5004.
    DRAExtendedResource on locked [DynamicResourceAllocation],
    /// KEP-5075.
    DRAFractionalCapacityRange off free [DynamicResourceAllocation, DRAConsumableCapacity],
    /// KEP-5491.
    DRAListTypeAttributes off free [DynamicResourceAllocation],
    /// KEP-5517.
    DRANodeAllocatableResources off free [DynamicResourceAllocation],
    /// KEP-5945.
    DRAOptionalNodeOperations off free [DynamicResourceAllocation, NodeDeclaredFeatures],
    /// KEP-4815.
    DRAPartitionableDevices on free [DynamicResourceAllocation],
    /// KEP-5677.
    DRAPartitionableDevicesType off free [DynamicResourceAllocation, DRAPartitionableDevices, DRAResourcePoolStatus],
    /// KEP-4816.
    DRAPrioritizedList on locked [DynamicResourceAllocation],
    /// KEP-4817.
    DRAResourceClaimDeviceStatus on locked [DynamicResourceAllocation],
    /// KEP-4817.
    DRAResourceClaimGranularStatusAuthorization on free [DynamicResourceAllocation, DRAResourceClaimDeviceStatus],
    /// KEP-5677.
    DRAResourcePoolStatus off free [DynamicResourceAllocation],
    /// KEP-4381.
    DRASchedulerFilterTimeout on free [DynamicResourceAllocation],
    /// KEP-5729.
    DRAWorkloadResourceClaims off free [DynamicResourceAllocation, GenericWorkload],
    /// KEP-4671; only because another gate needs it.
    GenericWorkload off free [],
    /// KEP-3695.
    KubeletPodResourcesDynamicResources on locked [DynamicResourceAllocation],
    /// KEP-5328; only because another gate needs it.
    NodeDeclaredFeatures on locked [],
    /// KEP-4680.
    ResourceHealthStatus on free [DynamicResourceAllocation],
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of gates that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("no feature gate {name:?}")]
    Unknown { name: String },
    #[error("feature gate setting {text:?} is not of the form Name=true or Name=false")]
    Form { text: String },
    #[error("feature gate {gate} cannot be switched off")]
    Locked { gate: Gate },
    #[error("feature gate {gate} needs {needed}, which is off")]
    Needs { gate: Gate, needed: Gate },
}

/// Which gates are on: one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeatureGates(u64);

impl FeatureGates {
    /// Every gate on.
    pub fn all() -> Self {
        Gate::ALL.iter().fold(Self(0), |gates, gate| gates.with(*gate, true))
    }

    /// Every gate off, also those that an installation cannot switch off. For tests of single features.
    pub const fn none() -> Self {
        Self(0)
    }

    /// The same gates with one of them set.
    #[must_use]
    pub const fn with(self, gate: Gate, on: bool) -> Self {
        let bit = 1_u64 << gate as u8;
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }

    /// True if the gate is on.
    pub const fn is_on(self, gate: Gate) -> bool {
        self.0 & (1_u64 << gate as u8) != 0
    }

    /// The gates that are on.
    pub fn on(self) -> impl Iterator<Item = Gate> {
        Gate::ALL.iter().copied().filter(move |gate| self.is_on(*gate))
    }

    /// Changes the defaults by `A=true,B=false`. Blanks and empty parts are ignored.
    ///
    /// Error: the first setting that is unknown, malformed, against a lock, or leaves a gate on without one it needs.
    pub fn parse(settings: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for text in settings.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let (gate, on) = parse_setting(text)?;
            if gate.is_locked() && on != gate.is_on_by_default() {
                return Err(GateError::Locked { gate });
            }
            gates = gates.with(gate, on);
        }
        gates.check_needs()?;
        Ok(gates)
    }

    fn check_needs(self) -> Result<(), GateError> {
        let missing = |gate: Gate| {
            gate.needs()
                .iter()
                .find(|needed| !self.is_on(**needed))
                .map(|needed| (gate, *needed))
        };
        match self.on().find_map(missing) {
            Some((gate, needed)) => Err(GateError::Needs { gate, needed }),
            None => Ok(()),
        }
    }
}

fn parse_setting(text: &str) -> Result<(Gate, bool), GateError> {
    let form = || GateError::Form { text: text.to_owned() };
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let name = name.trim();
    let gate = Gate::ALL.iter().copied().find(|gate| gate.name() == name);
    let gate = gate.ok_or_else(|| GateError::Unknown { name: name.to_owned() })?;
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok((gate, true)),
        "false" => Ok((gate, false)),
        _ => Err(form()),
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        Gate::ALL
            .iter()
            .fold(Self(0), |gates, gate| gates.with(*gate, gate.is_on_by_default()))
    }
}

impl FromStr for FeatureGates {
    type Err = GateError;
    fn from_str(settings: &str) -> Result<Self, GateError> {
        Self::parse(settings)
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.on()).finish()
    }
}
