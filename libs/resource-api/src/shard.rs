//! Which virtual shard a pool or a unit belongs to. Pure and fixed for all time: the result is stored with pools and units, and every
//! process computes the same.

use uuid::Uuid;

/// How many virtual shards an installation has.
pub const SHARDS: u16 = 64;

/// FNV-1a, 64 bit, over parts separated by a zero byte.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.iter().chain(std::iter::once(&0)) {
            state ^= u64::from(*byte);
            state = state.wrapping_mul(0x0100_0000_01b3);
        }
    }
    // FNV's low bits are weak for short inputs; fold the high ones in.
    state ^ (state >> 29)
}

fn fold(hash: u64) -> u16 {
    u16::try_from(hash % u64::from(SHARDS)).unwrap_or(0)
}

/// The shard of everything that is tied to one node, so that all drivers of a node are decided together.
pub fn node_shard(node: &str) -> u16 {
    fold(hash(&[b"node", node.as_bytes()]))
}

/// The shard of a new pool: its node's if it is tied to one, else by its own name.
pub fn pool_shard(node: Option<&str>, driver: &str, pool: &str) -> u16 {
    match node {
        Some(node) => node_shard(node),
        None => fold(hash(&[b"pool", driver.as_bytes(), pool.as_bytes()])),
    }
}

/// The shard that owns a unit while it waits.
pub fn home_shard(unit: Uuid) -> u16 {
    fold(hash(&[b"unit", unit.as_bytes()]))
}

/// The owner of a shard among living members: the one with the highest hash of (member, shard). A member that joins or leaves moves
/// only its own share.
pub fn rendezvous_owner<'a>(shard: u16, members: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rank = |member: &str| spread(hash(&[b"member", member.as_bytes(), &shard.to_be_bytes()]));
    members.into_iter().max_by_key(|member| (rank(member), *member))
}

/// Lets every bit of a hash decide about every other: FNV hardly carries its last bytes into the high bits, and those decide which
/// of two hashes is larger. Source: the finalizer of MurmurHash3.
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_fixed_for_all_time() {
        assert_eq!(node_shard("node-a"), node_shard("node-a"));
        assert_eq!(pool_shard(Some("n"), "d", "p"), node_shard("n"));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    }

    #[test]
    fn units_and_nodes_spread_evenly() {
        let mut counts = [0u32; SHARDS as usize];
        for i in 0..64_000 {
            counts[usize::from(node_shard(&format!("node-{i:05}")))] += 1;
        }
        assert!(counts.iter().all(|c| (700..1300).contains(c)), "{counts:?}");
    }

    #[test]
    fn a_leaving_member_moves_only_its_own_shards() {
        let three = ["a", "b", "c"];
        for shard in 0..SHARDS {
            let before = rendezvous_owner(shard, three);
            let after = rendezvous_owner(shard, ["a", "b"]);
            if before != Some("c") {
                assert_eq!(before, after);
            }
        }
        let owned = (0..SHARDS).filter(|s| rendezvous_owner(*s, three) == Some("a")).count();
        assert!((8..36).contains(&owned), "{owned} of 64");
    }
}
