//! Generated protobuf and gRPC: the native API `dray.v1`, resource.k8s.io/v1 with upstream's field numbers, and the kubelet's plugin APIs.
//!
//! Generated types live in handlers only; [`convert`] turns Kubernetes' messages into the types of `resource-api` and back.

pub mod convert;
mod json;

/// Everything that reflection shows.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The native API.
pub mod dray {
    #[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated")]
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/dray.v1.rs"));
    }
}

/// Kubernetes' packages, nested as prost writes their paths.
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated")]
pub mod k8s {
    pub mod io {
        pub mod api {
            pub mod core {
                pub mod v1 {
                    include!(concat!(env!("OUT_DIR"), "/k8s.io.api.core.v1.rs"));
                }
            }
            pub mod resource {
                pub mod v1 {
                    include!(concat!(env!("OUT_DIR"), "/k8s.io.api.resource.v1.rs"));
                }
            }
        }
        pub mod apimachinery {
            pub mod pkg {
                pub mod api {
                    pub mod resource {
                        include!(concat!(env!("OUT_DIR"), "/k8s.io.apimachinery.pkg.api.resource.rs"));
                    }
                }
                pub mod apis {
                    pub mod meta {
                        pub mod v1 {
                            include!(concat!(env!("OUT_DIR"), "/k8s.io.apimachinery.pkg.apis.meta.v1.rs"));
                        }
                    }
                }
                pub mod runtime {
                    include!(concat!(env!("OUT_DIR"), "/k8s.io.apimachinery.pkg.runtime.rs"));
                }
            }
        }
        pub mod kubelet {
            pub mod pkg {
                pub mod apis {
                    pub mod dra {
                        pub mod v1 {
                            include!(concat!(env!("OUT_DIR"), "/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
                        }
                    }
                }
            }
        }
    }
}

pub use k8s::io::api::{core::v1 as core_v1, resource::v1 as resource_v1};

/// What a node agent speaks with drivers.
pub mod kubelet {
    pub use crate::k8s::io::kubelet::pkg::apis::dra::v1 as dra_v1;
    /// Plugin registration.
    #[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated")]
    pub mod registration {
        include!(concat!(env!("OUT_DIR"), "/pluginregistration.rs"));
    }
}
