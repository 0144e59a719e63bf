//! The page-frame manager of Ebb.
#![no_std]

pub mod shared;
