//! The balloon device: where freed memory goes.
