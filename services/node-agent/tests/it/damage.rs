//! A damaged, deleted, newer or older state file: the agent starts, prepares what lives and undoes what is left.

use bus::messages::ClaimState;
use node_agent::sim_driver::Faults;
use testkit::eventually;

use crate::rig::{Rig, SOON};

enum Kept {
    Aside,
    Nothing,
}

/// `live` is in use, `left` was deleted while the agent was down; `damage` gets the file as it was and as it was before
/// `live`.
#[track_caller]
fn check(damage: impl FnOnce(&std::path::Path, &[u8]), kept: Kept) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let rig = Rig::new().await;
        let driver = rig.driver(Faults::default()).await;
        let agent = rig.agent().await;
        let left = rig.allocate("left", "gpu-1");
        rig.until(&left, ClaimState::Prepared).await;
        let older = std::fs::read(rig.checkpoint()).unwrap();
        let live = rig.allocate("live", "gpu-0");
        rig.until(&live, ClaimState::Prepared).await;
        agent.kill().await;
        rig.server.delete(&left);
        let epoch = rig.server.registered.lock().unwrap()[0].epoch.clone();
        damage(&rig.checkpoint(), &older);

        let agent = rig.agent().await;
        eventually(SOON, || async { *agent.ready.borrow() }).await;
        rig.until_released(&left).await;
        eventually(SOON, || async { driver.calls(&live).0 == 2 }).await;
        eventually(SOON, || async {
            std::fs::read_to_string(rig.checkpoint()).unwrap().contains(&live)
        })
        .await;
        assert_eq!(driver.calls(&live).1, 0, "{caller}: what lives is not unprepared");
        assert_eq!(driver.calls(&left).1, 1, "{caller}");
        assert_eq!(driver.shown.prepared(), [live], "{caller}");
        assert!(agent.is_running(), "{caller}");
        let aside = std::fs::read_dir(rig.checkpoint().parent().unwrap()).unwrap().flatten();
        let aside = aside
            .filter(|entry| entry.file_name().to_string_lossy().contains(".corrupt-"))
            .count();
        assert_eq!(aside, if matches!(kept, Kept::Aside) { 1 } else { 0 }, "{caller}");
        if matches!(kept, Kept::Aside) {
            assert_ne!(
                rig.server.registered.lock().unwrap().last().unwrap().epoch,
                epoch,
                "{caller}: a new life"
            );
            let lost = agent
                .registry
                .gather()
                .into_iter()
                .find(|family| family.name().ends_with("checkpoints_lost_total"));
            assert_eq!(lost.unwrap().get_metric()[0].get_counter().get_value(), 1.0, "{caller}");
        }
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_in_the_middle() {
    let cut = |file: &std::path::Path, _: &[u8]| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    check(cut, Kept::Aside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_flipped() {
    let flip = |file: &std::path::Path, _: &[u8]| {
        let mut bytes = std::fs::read(file).unwrap();
        let at = bytes.len() - 10;
        bytes[at] ^= 1;
        std::fs::write(file, bytes).unwrap();
    };
    check(flip, Kept::Aside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied() {
    check(|file, _| std::fs::write(file, "").unwrap(), Kept::Aside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted() {
    check(|file, _| std::fs::remove_file(file).unwrap(), Kept::Nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn written_by_a_newer_program() {
    let newer = |file: &std::path::Path, _: &[u8]| {
        let text = std::fs::read_to_string(file).unwrap();
        std::fs::write(file, text.replacen("\"version\":1", "\"version\":2", 1)).unwrap();
    };
    check(newer, Kept::Aside).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_by_an_older_one() {
    check(|file, older| std::fs::write(file, older).unwrap(), Kept::Nothing).await;
}
