//! All integration tests of the crate in one program, which is built and linked once.

#[path = "../arena/mod.rs"]
mod arena;
#[path = "../attach/exercise.rs"]
mod exercise;

mod allocate;
mod attach;
mod bulk;
mod compaction;
mod compaction_for_host;
mod compaction_gib;
mod compaction_policy;
mod contents;
mod contiguous;
mod cpu_cache_model;
mod cpu_caches;
mod estimate;
mod gib;
mod hinting;
mod isa_dma;
mod levels;
mod low_memory;
mod misuse;
mod nodes;
mod packing;
#[cfg(feature = "x86_64")]
mod page_tables;
mod placing;
mod reclaim;
mod replay;
mod reporting;
mod shuffle;
mod stress;
mod view;
