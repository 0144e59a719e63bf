//! Page tables of an address space: a tree of four levels.
//!
//! A [`Tree`] owns its root and all tables below. A reference to a table or an entry borrows from
//! the tree. Tables are added through `&Tree`, which leaves such references valid. They are taken
//! out through `&mut Tree`, when there is no such reference. So a table outlives each reference to
//! it.
//!
//! An entry of the last level is a plain number, since only the CPU follows it. Entries of upper
//! levels lead to tables, so they are changed through [`Slot`], which takes and returns the owners
//! of tables ([`TableFrame`]).

mod deposits;
mod frame;
mod hot;
mod slot;
mod stores;
mod table;
mod tree;

pub use deposits::Deposits;
pub use frame::TableFrame;
pub use slot::Slot;
pub use table::{REGION, SPANS, TRIAL, Table, index};
pub use tree::{Leaf, Region, Tree};
