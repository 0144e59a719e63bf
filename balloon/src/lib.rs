//! A virtio-balloon driver.
#![no_std]
