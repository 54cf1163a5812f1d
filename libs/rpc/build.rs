//! Compiles the .proto files without protoc. Kubernetes' messages also get serde, in Kubernetes' JSON form: that is how they become the
//! types of `resource-api` (see src/convert.rs).

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "dray/v1/dray.proto",
        "k8s/resource.proto",
        "kubelet/registration.proto",
        "kubelet/dra_v1.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed=proto/{file}");
    }
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(
        Path::new(&out).join("descriptors.bin"),
        prost::Message::encode_to_vec(&descriptors),
    )?;
    let k8s = [".k8s.io.api", ".k8s.io.apimachinery"];
    let mut builder = tonic_prost_build::configure();
    for package in k8s {
        builder = builder
            .type_attribute(package, "#[derive(serde::Serialize, serde::Deserialize)]")
            .message_attribute(package, "#[serde(default, rename_all = \"camelCase\")]");
    }
    builder = builder
        // Quantities are text, raw extensions are JSON as it stands, times are RFC 3339 in Kubernetes' JSON.
        .message_attribute(".k8s.io.apimachinery.pkg.api.resource.Quantity", "#[serde(transparent)]");
    for (field, with) in [
        (
            "OpaqueDeviceConfiguration.parameters",
            "#[serde(with = \"crate::json::raw\")]",
        ),
        ("AllocatedDeviceStatus.data", "#[serde(with = \"crate::json::raw\")]"),
        (
            "AllocationResult.allocation_timestamp",
            "#[serde(with = \"crate::json::time\")]",
        ),
        ("DeviceTaint.time_added", "#[serde(with = \"crate::json::time\")]"),
        (
            "DeviceClaimConfiguration.device_configuration",
            "#[serde(rename = \"opaque\", with = \"crate::json::opaque\")]",
        ),
        (
            "DeviceClassConfiguration.device_configuration",
            "#[serde(rename = \"opaque\", with = \"crate::json::opaque\")]",
        ),
        (
            "DeviceAllocationConfiguration.device_configuration",
            "#[serde(rename = \"opaque\", with = \"crate::json::opaque\")]",
        ),
        ("AllocatedDeviceStatus.share_id", "#[serde(rename = \"shareID\")]"),
        ("DeviceRequestAllocationResult.share_id", "#[serde(rename = \"shareID\")]"),
    ] {
        builder = builder.field_attribute(format!(".k8s.io.api.resource.v1.{field}"), with);
    }
    for field in [
        "Condition.last_transition_time",
        "ManagedFieldsEntry.time",
        "ObjectMeta.creation_timestamp",
        "ObjectMeta.deletion_timestamp",
    ] {
        builder = builder.field_attribute(
            format!(".k8s.io.apimachinery.pkg.apis.meta.v1.{field}"),
            "#[serde(with = \"crate::json::time\")]",
        );
    }
    // An empty list is an absent one.
    for file in &descriptors.file {
        for message in &file.message_type {
            let is_map = |name: &str| {
                message
                    .nested_type
                    .iter()
                    .any(|nested| name.ends_with(&format!(".{}", nested.name())))
            };
            for field in &message.field {
                let repeated =
                    field.label() == prost_types::field_descriptor_proto::Label::Repeated && !is_map(field.type_name());
                if repeated && k8s.iter().any(|package| format!(".{}", file.package()).starts_with(package)) {
                    let path = format!(".{}.{}.{}", file.package(), message.name(), field.name());
                    let empty = "#[serde(skip_serializing_if = \"Vec::is_empty\", deserialize_with = \"crate::json::or_empty\")]";
                    builder = builder.field_attribute(path, empty);
                }
            }
        }
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}
