//! Tests options of mounts, valid ones and invalid ones.

use crate::errno::Errno;
use crate::mount_options::{HugetlbfsOptions, MountOption, TmpfsOptions, options};
use std::vec::Vec;

/// Number of pages of a machine with 256 MiB.
const RAM: u64 = 65536;

fn parse(text: &str) -> Result<TmpfsOptions<'_>, Errno> {
    TmpfsOptions::parse(text.as_bytes(), RAM)
}

fn pages(text: &str) -> Option<u64> {
    parse(text).ok()?.pages
}

#[test]
fn words_stand_between_commas() {
    let found: Vec<_> = options(b"a,,b=c,d=,=e,f=g=h").collect();
    let option = |name: &'static [u8], value| MountOption { name, value };
    assert_eq!(
        found,
        [
            option(b"a", None),
            option(b"b", Some(b"c")),
            option(b"d", Some(b"")),
            option(b"f", Some(b"g=h")),
        ]
    );
}

#[test]
fn sizes_have_suffixes_and_parts_of_memory() {
    for (text, expected) in [
        ("size=4096", 1),
        ("size=4097", 2),
        ("size=0", 0),
        ("size=8k", 2),
        ("size=8K", 2),
        ("size=8m", 2048),
        ("size=1g", 262_144),
        ("size=1T", 1 << 28),
        ("size=0x2000", 2),
        ("size=010000", 1),
        ("size=50%", RAM / 2),
        ("size=200%", RAM * 2),
        ("nr_blocks=5", 5),
        ("nr_blocks=1k", 1024),
        ("size=1m,size=2m", 512),
    ] {
        assert_eq!(pages(text), Some(expected), "{text}");
    }
}

#[test]
fn the_rest_is_read_as_linux_reads_it() {
    let all = parse("mode=1750,uid=10,gid=0x14,nr_inodes=2k,inode64,noswap,huge=never");
    let expected = TmpfsOptions {
        pages: None,
        files: Some(2048),
        mode: Some(0o1750),
        uid: Some(10),
        gid: Some(20),
        blocks: Some(b"never"),
    };
    assert_eq!(all, Ok(expected));
    assert_eq!(parse(""), Ok(TmpfsOptions::default()));
    assert_eq!(parse(",,"), Ok(TmpfsOptions::default()));
    assert_eq!(parse("mode=17777").map(|o| o.mode), Ok(Some(0o7777)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for text in [
        "size",
        "size=",
        "size=x",
        "size=-1",
        "size=1q",
        "size=1mm",
        "size=1%%",
        "size=%",
        "size=1 m",
        "size=20000000000000000000",
        "size=16777216t",
        "size=99999999999999999%",
        "nr_blocks=50%",
        "nr_blocks=9223372036854775808",
        "nr_inodes=18446744073709551615",
        "mode=8",
        "mode=+7",
        "mode=0x1",
        "mode=777777777777",
        "uid=-1",
        "uid=4294967295",
        "uid=1k",
        "gid=root",
        "inode64=1",
        "inode32",
        "huge",
        "mpol=bind:0",
        "sizee=1",
        "loop",
    ] {
        assert_eq!(parse(text), Err(Errno::EINVAL), "{text}");
    }
}

#[test]
fn no_text_is_too_odd() {
    let mut seed = 0x5eed_u64;
    let alphabet = b"size=nr_blocksmodeuidgid0123456789%kmgtpe,=x \xff";
    for _ in 0..20_000 {
        let mut text = Vec::new();
        for _ in 0..seed % 24 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push(alphabet[(seed >> 33) as usize % alphabet.len()]);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = TmpfsOptions::parse(&text, RAM);
    }
}

#[test]
fn hugetlbfs_lets_pass_what_follows_a_count() {
    const HUGE: u64 = 2 << 20;
    let parse = |text: &str| HugetlbfsOptions::parse(text.as_bytes(), HUGE, 10);
    for (text, pages) in [
        ("size=4M", 2),
        ("size=4MB", 2),
        ("size=5M", 2),
        ("size=33%", 3),
        ("size=33%more", 3),
        ("size=0x400000,", 2),
    ] {
        assert_eq!(parse(text).map(|o| o.pages), Ok(Some(pages)), "{text}");
    }
    for text in [
        "size=",
        "size",
        "size=-1",
        "size= 4M",
        "nr_inodes=k",
        "ro=1",
    ] {
        assert_eq!(parse(text), Err(Errno::EINVAL), "{text}");
    }
    assert_eq!(parse("ro,rw").map(|o| o.read_only), Ok(Some(false)));
    assert_eq!(
        parse("min_size=1M,size=1").map(|o| (o.least_pages, o.pages)),
        Ok((Some(0), Some(0)))
    );
}

/// Any size is parsed here; the mount refuses sizes that do not exist.
#[test]
fn the_last_size_of_pages_counts() {
    let read = |text: &str| HugetlbfsOptions::page_bytes(text.as_bytes());
    for (text, bytes) in [
        ("", None),
        ("size=4M", None),
        ("pagesize=2M", Some(2 << 20)),
        ("pagesize=1G,size=2G", Some(1 << 30)),
        ("pagesize=1G,pagesize=2048k", Some(2 << 20)),
        ("pagesize=4k", Some(4096)),
    ] {
        assert_eq!(read(text), Ok(bytes), "{text}");
    }
    for text in [
        "pagesize",
        "pagesize=",
        "pagesize=-2M",
        "pagesize=2M,pagesize=x",
    ] {
        assert_eq!(read(text), Err(Errno::EINVAL), "{text}");
    }
}
