//! Memory policies of NUMA, for a machine with one memory node: `set_mempolicy(2)`, `mbind(2)`.
//!
//! A policy says on which nodes memory should be allocated. With one node all policies have the
//! same effect, so a policy is only checked, stored and shown.

use crate::errno::Errno;

/// No policy: memory comes from the node of the thread's CPU.
const DEFAULT: u8 = 0;
/// Memory comes from this node if it has some.
const PREFERRED: u8 = 1;
/// Memory comes from these nodes only.
const BIND: u8 = 2;
/// Memory comes from the node of the thread's CPU, as an explicit policy.
const LOCAL: u8 = 4;
/// Names of modes in `/proc/PID/numa_maps`.
const NAMES: [&str; 6] = [
    "default",
    "prefer",
    "bind",
    "interleave",
    "local",
    "prefer (many)",
];

/// Flag in a program's mode: nodes that do not exist are ignored.
const STATIC_NODES: u32 = 1 << 15;
/// Flag in a program's mode: node numbers are relative to the existing nodes.
const RELATIVE_NODES: u32 = 1 << 14;
/// Flag in a program's mode: pages may migrate to the node that uses them.
const NUMA_BALANCING: u32 = 1 << 13;
const FLAGS: u32 = STATIC_NODES | RELATIVE_NODES | NUMA_BALANCING;
/// Position of the flags in a packed policy: the number of the lowest bit.
const FLAGS_AT: u32 = 3;
const MODE: u8 = (1 << FLAGS_AT) - 1;

/// Number of bits of a packed policy.
pub const POLICY_BITS: u32 = 6;

/// The set of nodes that a program passes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Whether node 0, the only one, is in the set.
    pub first: bool,
    /// Whether any other node is in the set.
    pub others: bool,
}

impl Nodes {
    /// Node 0 only.
    pub const FIRST: Self = Self {
        first: true,
        others: false,
    };

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A checked policy, packed into [`POLICY_BITS`] bits. 0 is no policy.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy(u8);

impl Policy {
    /// Checks `mode`, the mode and flags that a program passes. Linux does so before it reads the
    /// nodes.
    ///
    /// # Errors
    /// `EINVAL` for an unknown mode, and for flags that exclude each other or do not fit the mode.
    pub fn check_mode(mode: u32) -> Result<(), Errno> {
        let (flags, mode) = (mode & FLAGS, mode & !FLAGS);
        let places = STATIC_NODES | RELATIVE_NODES;
        if mode as usize >= NAMES.len()
            || flags & places == places
            || flags & NUMA_BALANCING != 0 && mode != u32::from(BIND)
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Returns the policy with this `mode`, which includes flags, for these `nodes`.
    /// `MPOL_PREFERRED` without nodes and without flags for node numbers becomes `MPOL_LOCAL`.
    ///
    /// # Errors
    /// `EINVAL` for an unknown mode, and for flags that exclude each other or do not fit the mode.
    /// `EINVAL` if `nodes` has nodes for a mode without nodes, or no existing node for a mode that
    /// needs one. With relative node numbers each node exists.
    pub fn new(mode: u32, nodes: Nodes) -> Result<Self, Errno> {
        Self::check_mode(mode)?;
        let flags = mode & FLAGS;
        let mode = u8::try_from(mode & !FLAGS).map_err(|_| Errno::EINVAL)?;
        let places = flags & (STATIC_NODES | RELATIVE_NODES);
        let here = Self(mode);
        match mode {
            DEFAULT if nodes.is_empty() => return Ok(Self(DEFAULT)),
            LOCAL | PREFERRED if nodes.is_empty() && places == 0 => return Ok(Self(LOCAL)),
            DEFAULT | LOCAL => return Err(Errno::EINVAL),
            // Relative to the existing nodes, each number is node 0.
            _ if nodes.first || nodes.others && places == RELATIVE_NODES => {}
            _ => return Err(Errno::EINVAL),
        }
        // The flags are three bits from bit 13 on.
        Ok(Self(here.0 | ((flags >> 13) as u8) << FLAGS_AT))
    }

    /// Returns the policy in `bits`, which [`Self::bits`] has returned.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the policy as [`POLICY_BITS`] bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether this is the default policy (`MPOL_DEFAULT`), which means that no policy is
    /// set.
    pub fn is_default(self) -> bool {
        self.0 == DEFAULT
    }

    /// Returns whether the mode is `MPOL_INTERLEAVE`, which spreads pages over the nodes in turn.
    pub fn interleaves(self) -> bool {
        NAMES.get(usize::from(self.0 & MODE)) == Some(&"interleave")
    }

    /// Returns the mode for `get_mempolicy(2)`, including the flags.
    pub fn mode(self) -> u32 {
        let flags = u32::from(self.0 >> FLAGS_AT) << 13;
        u32::from(self.0 & MODE) | flags & FLAGS
    }

    /// Returns the nodes that the policy names. The set is empty for policies without nodes.
    pub fn nodes(self) -> Nodes {
        match self.0 & MODE {
            DEFAULT | LOCAL => Nodes::default(),
            _ => Nodes::FIRST,
        }
    }

    /// Returns the parts of the policy's text in `/proc/PID/numa_maps`, which are written without
    /// separators.
    pub fn words(self) -> [&'static str; 3] {
        let mode = self.mode();
        let flag = if mode & STATIC_NODES != 0 {
            "=static"
        } else if mode & RELATIVE_NODES != 0 {
            "=relative"
        } else {
            ""
        };
        let nodes = if self.nodes().is_empty() { "" } else { ":0" };
        let name = NAMES.get(usize::from(self.0 & MODE)).unwrap_or(&"default");
        [name, flag, nodes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Nodes = Nodes {
        first: false,
        others: false,
    };
    const SECOND: Nodes = Nodes {
        first: false,
        others: true,
    };

    #[test]
    fn a_mode_wants_its_nodes() {
        for (mode, nodes, name) in [
            (0, NONE, Some("default")),
            (0, Nodes::FIRST, None),
            (1, NONE, Some("local")),
            (1, Nodes::FIRST, Some("prefer:0")),
            (1 | STATIC_NODES, NONE, None),
            (1 | STATIC_NODES, Nodes::FIRST, Some("prefer=static:0")),
            (2, NONE, None),
            (2, SECOND, None),
            (2 | RELATIVE_NODES, SECOND, Some("bind=relative:0")),
            (2 | STATIC_NODES, SECOND, None),
            (2 | NUMA_BALANCING, Nodes::FIRST, Some("bind:0")),
            (3 | NUMA_BALANCING, Nodes::FIRST, None),
            (3, Nodes::FIRST, Some("interleave:0")),
            (4, NONE, Some("local")),
            (4, Nodes::FIRST, None),
            (5, Nodes::FIRST, Some("prefer (many):0")),
            (6, Nodes::FIRST, None),
            (1 << 12, NONE, None),
            (2 | STATIC_NODES | RELATIVE_NODES, Nodes::FIRST, None),
        ] {
            let policy = Policy::new(mode, nodes);
            let text = policy.map(|policy| policy.words().concat()).ok();
            assert_eq!(text.as_deref(), name, "{mode:#x} {nodes:?}");
        }
    }

    #[test]
    fn a_packed_policy_is_the_same() {
        for mode in [2, 2 | STATIC_NODES, 3 | RELATIVE_NODES, 2 | NUMA_BALANCING] {
            let policy = Policy::new(mode, Nodes::FIRST).expect("allowed");
            assert!(policy.bits() < 1 << POLICY_BITS);
            assert_eq!(Policy::from_bits(policy.bits()), policy);
            assert_eq!(policy.mode(), mode);
        }
    }
}
