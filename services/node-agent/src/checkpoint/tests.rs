//! The file survives what may happen to files, and what does not is told apart.

use resource_api::Uid;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::allocation::{Allocation, GivenDevice, PreparedDevice};
use crate::state::Phase;

const NOW: u64 = 1_700_000_000;

fn key() -> AllocationKey {
    AllocationKey {
        claim: Uid(Uuid::from_u128(1)),
        sequence: Sequence(u64::MAX),
    }
}

fn some_state() -> State {
    let device = GivenDevice {
        request: "r".into(),
        driver: "a.example".into(),
        pool: "n".into(),
        device: "gpu-0".into(),
    };
    let allocation = Allocation {
        node: "n".into(),
        namespace: "team".into(),
        name: "c \"1\"".into(),
        devices: vec![device],
    };
    let prepared = PreparedDevice {
        cdi_device_ids: vec!["x/y=z".into()],
        share_id: Some("s".into()),
        ..Default::default()
    };
    let mut state = State::first("epoch".to_owned());
    state.position = Sequence(77);
    state.on_asking(key(), &allocation, &"a.example".into());
    state.on_prepared(key(), &"a.example".into(), vec![prepared]);
    state
}

fn saved() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    Checkpoint::open(dir.path()).unwrap().save(&some_state()).unwrap();
    let file = dir.path().join(FILE);
    (dir, file)
}

fn load(dir: &TempDir) -> Loaded {
    Checkpoint::open(dir.path()).unwrap().load("new".to_owned(), NOW).unwrap()
}

fn kept(dir: &TempDir) -> usize {
    let names = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("prepared.json.corrupt-")).count()
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let (dir, _) = saved();
    let loaded = load(&dir);
    assert_eq!((loaded.state, loaded.lost), (some_state(), None));
}

#[test]
fn a_new_node_remembers_nothing_and_has_lost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&dir);
    assert_eq!((loaded.state, loaded.lost), (State::first("new".to_owned()), None));
}

#[test]
fn a_file_that_was_deleted_is_missed() {
    let (dir, file) = saved();
    std::fs::remove_file(file).unwrap();
    let loaded = load(&dir);
    assert_eq!(
        (loaded.state, loaded.lost),
        (State::blind("new".to_owned()), Some(Lost::Missing))
    );
}

#[test]
fn every_cut_and_every_flipped_byte_is_noticed_and_kept() {
    let (dir, file) = saved();
    let whole = std::fs::read(&file).unwrap();
    let cuts = (0..whole.len()).map(|end| whole[..end].to_vec());
    let flips = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        bytes
    });
    for bytes in cuts.chain(flips) {
        std::fs::write(&file, &bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match load(&dir).lost {
            Some(Lost::Damaged { kept, .. } | Lost::Newer { kept, .. }) => {
                assert_eq!(std::fs::read(&kept).unwrap(), bytes, "kept as it was");
                std::fs::remove_file(kept).unwrap();
            }
            other => panic!("{other:?} for {text}"),
        }
    }
}

#[test]
fn a_newer_file_is_kept_and_not_overwritten() {
    let (dir, file) = saved();
    let newer = br#"{"version":2,"everything":"else"}"#;
    std::fs::write(&file, newer).unwrap();
    let loaded = load(&dir);
    assert_eq!(loaded.state, State::blind("new".to_owned()));
    let Some(Lost::Newer { version: 2, kept }) = loaded.lost else {
        panic!("{:?}", loaded.lost)
    };
    assert_eq!(std::fs::read(kept).unwrap(), newer);
    std::fs::write(&file, newer).unwrap();
    assert!(matches!(load(&dir).lost, Some(Lost::Newer { .. })));
    assert_eq!(
        self::kept(&dir),
        2,
        "a second one in the same second does not replace the first"
    );
}

#[test]
fn a_half_written_new_file_does_not_matter() {
    let (dir, _) = saved();
    std::fs::write(dir.path().join("prepared.json.new"), b"{\"vers").unwrap();
    assert_eq!(load(&dir).state, some_state());
}

#[test]
fn two_agents_do_not_share_a_folder() {
    let (dir, _) = saved();
    let first = Checkpoint::open(dir.path()).unwrap();
    assert!(matches!(Checkpoint::open(dir.path()), Err(CheckpointError::InUse { .. })));
    drop(first);
    Checkpoint::open(dir.path()).unwrap();
}

#[test]
fn phases_only_move_forward() {
    let mut state = some_state();
    let allocation = state.entries[&key()].allocation.clone();
    state.move_on(key(), &allocation, Phase::Ended);
    state.move_on(key(), &allocation, Phase::Ending);
    assert_eq!(state.entries[&key()].phase, Phase::Ended);
}
