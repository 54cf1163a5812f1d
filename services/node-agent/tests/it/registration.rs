//! Who may register, what the others are told, and that they are asked again.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rpc::kubelet::registration::registration_server::{Registration, RegistrationServer};
use rpc::kubelet::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use testkit::eventually;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::rig::{Rig, SOON};

/// Says what the test wants, and remembers what it was told.
#[derive(Clone)]
struct Told {
    info: Arc<Mutex<PluginInfo>>,
    statuses: Arc<Mutex<Vec<RegistrationStatus>>>,
}

#[tonic::async_trait]
impl Registration for Told {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.lock().unwrap().clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.statuses.lock().unwrap().push(request.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

fn info(kind: &str, name: &str, versions: &[&str]) -> PluginInfo {
    PluginInfo {
        r#type: kind.to_owned(),
        name: name.to_owned(),
        endpoint: "/nowhere/dra.sock".to_owned(),
        supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
    }
}

fn serve(socket: &Path, info: PluginInfo) -> Told {
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o700)).unwrap();
    let told = Told {
        info: Arc::new(Mutex::new(info)),
        statuses: Arc::default(),
    };
    let router = tonic::transport::Server::builder().add_service(RegistrationServer::new(told.clone()));
    tokio::spawn(async move { router.serve_with_incoming(UnixListenerStream::new(listener)).await.ok() });
    told
}

async fn first_word(told: &Told) -> RegistrationStatus {
    eventually(SOON, || async { told.statuses.lock().unwrap().first().cloned() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_used_is_told_why_and_asked_again() {
    let rig = Rig::new().await;
    let (csi, old, name) = (
        serve(
            &rig.registry().join("csi-reg.sock"),
            info("CSIPlugin", "csi.example", &["1.0.0"]),
        ),
        serve(
            &rig.registry().join("old-reg.sock"),
            info("DRAPlugin", "old.example", &["1.0.0", "v9.DRAPlugin"]),
        ),
        serve(
            &rig.registry().join("name-reg.sock"),
            info("DRAPlugin", "not a name", &["v1.DRAPlugin"]),
        ),
    );
    let agent = rig.agent().await;
    for (told, why) in [
        (&csi, "no handler registered for plugin type \"CSIPlugin\""),
        (&old, "v9.DRAPlugin"),
        (&name, "not a name"),
    ] {
        let status = first_word(told).await;
        assert!(!status.plugin_registered && status.error.contains(why), "{status:?}");
    }
    *old.info.lock().unwrap() = info("DRAPlugin", "old.example", &["v9.DRAPlugin", "v1.DRAPlugin"]);
    eventually(SOON, || async {
        old.statuses.lock().unwrap().iter().any(|status| status.plugin_registered)
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_found_at_the_start_later_and_in_folders_but_not_hidden_ones() {
    let rig = Rig::new().await;
    let before = serve(
        &rig.registry().join("before-reg.sock"),
        info("DRAPlugin", "before.example", &["v1.DRAPlugin"]),
    );
    let hidden = serve(
        &rig.registry().join(".hidden-reg.sock"),
        info("DRAPlugin", "hidden.example", &["v1.DRAPlugin"]),
    );
    let agent = rig.agent().await;
    assert!(first_word(&before).await.plugin_registered);
    let later = serve(
        &rig.registry().join("a/b/later-reg.sock"),
        info("DRAPlugin", "later.example", &["v1.DRAPlugin"]),
    );
    assert!(first_word(&later).await.plugin_registered);
    assert!(hidden.statuses.lock().unwrap().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_used_by_one_registration_of_a_driver() {
    let rig = Rig::new().await;
    let first = serve(
        &rig.registry().join("1-reg.sock"),
        info("DRAPlugin", "a.example", &["v1.DRAPlugin"]),
    );
    let agent = rig.agent().await;
    assert!(first_word(&first).await.plugin_registered);
    let second = serve(
        &rig.registry().join("2-reg.sock"),
        info("DRAPlugin", "a.example", &["v1.DRAPlugin"]),
    );
    let status = first_word(&second).await;
    assert!(status.error.contains("already registered"), "{status:?}");
    std::fs::remove_file(rig.registry().join("1-reg.sock")).unwrap();
    eventually(SOON, || async {
        second.statuses.lock().unwrap().iter().any(|status| status.plugin_registered)
    })
    .await;
    agent.stop().await;
}
