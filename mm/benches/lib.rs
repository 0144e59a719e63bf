//! Holds no code: cargo wants a library or program beside the benchmarks of this package.
