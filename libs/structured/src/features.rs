//! The feature gates that change an allocator's answer, with the defaults of Kubernetes 1.37.
//!
//! Rule of thumb of the model: a claim that needs a gate that is off is a fault (its author must be told); a device that
//! needs one is just not usable.

/// Which optional parts of the model are switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features {
    /// `DRAAdminAccess` (KEP-5018).
    pub admin_access: bool,
    /// `DRAPrioritizedList` (KEP-4816).
    pub prioritized_list: bool,
    /// `DRAPartitionableDevices` (KEP-4815).
    pub partitionable_devices: bool,
    /// `DRADeviceTaints` (KEP-5055).
    pub device_taints: bool,
    /// `DRADeviceTaintRules`: rules put taints on devices from outside of their driver (KEP-5055).
    pub device_taint_rules: bool,
    /// `DRAConsumableCapacity` (KEP-5075).
    pub consumable_capacity: bool,
    /// `DRAFractionalCapacityRange` (KEP-5075).
    pub fractional_capacity_range: bool,
    /// `DRADeviceBindingConditions` together with `DRAResourceClaimDeviceStatus` (KEP-5007, KEP-4817).
    pub binding_conditions: bool,
    /// `DRAListTypeAttributes` (KEP-5491).
    pub list_type_attributes: bool,
    /// `DRADerivedAttributes` (KEP-6080).
    pub derived_attributes: bool,
    /// `DRADeviceCompatibilityGroups` (KEP-5963).
    pub compatibility_groups: bool,
    /// `DRAOptionalNodeOperations` (KEP-5945).
    pub optional_node_operations: bool,
}

impl Default for Features {
    /// As in a Kubernetes 1.37 cluster that switches nothing.
    fn default() -> Self {
        let mut features = Self::all();
        features.fractional_capacity_range = false;
        features.list_type_attributes = false;
        features.derived_attributes = false;
        features.compatibility_groups = false;
        features.optional_node_operations = false;
        features
    }
}

impl Features {
    /// Every gate on.
    #[must_use]
    pub fn all() -> Self {
        Self {
            admin_access: true,
            prioritized_list: true,
            partitionable_devices: true,
            device_taints: true,
            device_taint_rules: true,
            consumable_capacity: true,
            fractional_capacity_range: true,
            binding_conditions: true,
            list_type_attributes: true,
            derived_attributes: true,
            compatibility_groups: true,
            optional_node_operations: true,
        }
    }

    /// Every gate off.
    #[must_use]
    pub fn none() -> Self {
        Self {
            admin_access: false,
            prioritized_list: false,
            partitionable_devices: false,
            device_taints: false,
            device_taint_rules: false,
            consumable_capacity: false,
            fractional_capacity_range: false,
            binding_conditions: false,
            list_type_attributes: false,
            derived_attributes: false,
            compatibility_groups: false,
            optional_node_operations: false,
        }
    }

    /// Exactly the named gates on. Gates that do not concern the allocator are ignored.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut features = Self::none();
        names.into_iter().for_each(|name| features.switch_on(name));
        features
    }

    /// Switches on the gate of this name. Names that do not concern the allocator are ignored.
    pub fn switch_on(&mut self, name: &str) {
        match name {
            "DRAAdminAccess" => self.admin_access = true,
            "DRAPrioritizedList" => self.prioritized_list = true,
            "DRAPartitionableDevices" => self.partitionable_devices = true,
            "DRADeviceTaints" => self.device_taints = true,
            "DRADeviceTaintRules" => self.device_taint_rules = true,
            "DRAConsumableCapacity" => self.consumable_capacity = true,
            "DRAFractionalCapacityRange" => self.fractional_capacity_range = true,
            "DRADeviceBindingConditions" => self.binding_conditions = true,
            "DRAListTypeAttributes" => self.list_type_attributes = true,
            "DRADerivedAttributes" => self.derived_attributes = true,
            "DRADeviceCompatibilityGroups" => self.compatibility_groups = true,
            "DRAOptionalNodeOperations" => self.optional_node_operations = true,
            _ => {}
        }
    }
}
