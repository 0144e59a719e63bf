//! The list of experiments, and the arguments of each.

use super::calls::{
    RATE_ROUNDS, RATE_SECONDS, counted_time, each, fragmented, gib, idle_pool, memhog, messaging,
    page_fault, pool, rate, share, words,
};
use super::elastic;
use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::faults;
use super::give_back;
use super::give_back_mode::GiveBackMode;
use super::options::CompareOptions;
use super::parallel;
use super::programs;
use super::scale;
use super::schema::Guest;
use super::shape::Shape;
use crate::text::Size;
use std::path::PathBuf;
use std::time::Duration;

/// The number of guests of [`ExperimentProgram::Boots`], independent of the number of rounds.
const BOOTS: u32 = 100;
/// The maximum number of CPUs of a guest of [`ExperimentProgram::Boots`].
const BOOTS_CPUS_MAX: u32 = 8;

/// The default number of rounds.
const ROUNDS: u32 = 3;
/// The number of rounds if instructions are counted. The count varies only with the guest's random
/// numbers. They differ between rounds, but are the same in each comparison.
const ROUNDS_ICOUNT: u32 = 2;
/// The minimum number of rounds if guests take turns: those of six boots, the fewest whose ratios
/// have an interval of 95 % confidence.
const TURNS_LEAST: u32 = 18;
/// The maximum number of rounds if guests take turns, unless the ratios have settled before.
const TURNS_MOST: u32 = 36;
/// Experiments whose round takes fewer seconds than this may have twice the maximum number of
/// rounds. They are cheap, and vary more.
const SHORT_SECONDS: f64 = 0.5;
/// The number of rounds in turns if the guests give nothing back.
const TURNS_UNREPORTED: u32 = 3;
/// The option with which the experiments' program waits for its turns.
const TURNS: &str = "--turns";

/// The number of rounds of an experiment in one shape.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rounds {
    pub(crate) least: u32,
    /// The maximum number, if the figures have not settled before.
    pub(crate) most: u32,
}

impl Rounds {
    /// Returns exactly `rounds` rounds.
    fn fixed(rounds: u32) -> Self {
        Self {
            least: rounds,
            most: rounds,
        }
    }
}

/// An experiment in one shape of its guests: memory, CPUs and mode of giving memory back.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) experiment: &'static Experiment,
    pub(crate) shape: Shape,
}

/// The experiment whose guest needs a disk.
const DISK: &str = "disk";

/// The memory of most guests in MiB.
const GUEST_MIB: &[u64] = &[1024];
/// The command line for experiments with pools. Debian's kernel would clear all memory that it
/// allocates, which would hide the other costs of a pool. Page descriptors of huge pages are kept,
/// which is the default.
const POOL_KEPT: &str = "init_on_alloc=0 hugetlb_free_vmemmap=off";
/// The same command line, but page descriptors of huge pages are freed.
const POOL_GIVEN_UP: &str = "init_on_alloc=0 hugetlb_free_vmemmap=on";

/// The command line with which Linux does not clear memory when it allocates it. Debian's kernel
/// does, and clears a huge page for a program again afterwards.
const CLEARED_ONCE: &str = "init_on_alloc=0";

/// The experiments that compare the kernels, in the order in which they run.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "idle",
        pace: Pace::Apart,
        summary: "what a guest takes before its program does anything",
        usual: true,
        memory_mib: &[1024, 16384],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["idle", "0"])),
    },
    Experiment {
        name: "memhog",
        pace: Pace::Once,
        summary: "70 % of memory is used and freed: when is it back on the host?",
        usual: true,
        memory_mib: &[2048],
        cpus: &[1],
        seconds: 24.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(memhog),
    },
    Experiment {
        name: "page-fault/4k",
        pace: Pace::Fixed,
        summary: "faults a second on 4 KiB pages",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[1, 2],
        seconds: 0.6,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| page_fault("4k", shape)),
    },
    Experiment {
        name: "page-fault/thp",
        pace: Pace::Fixed,
        summary: "faults a second on 2 MiB pages",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[1, 2],
        seconds: 0.6,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| page_fault("thp", shape)),
    },
    Experiment {
        name: "page-fault/thp-once",
        pace: Pace::Fixed,
        summary: "the same; Linux clears each page once, with init_on_alloc=0",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[1, 2],
        seconds: 0.6,
        boot_words: BootWords::Linux(CLEARED_ONCE),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| page_fault("thp", shape)),
    },
    Experiment {
        name: "page-fault/file",
        pace: Pace::Fixed,
        summary: "faults a second on a private mapping of a file",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[1, 2],
        seconds: 0.6,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| page_fault("file", shape)),
    },
    Experiment {
        name: "messaging",
        pace: Pace::Fixed,
        summary: "hackbench: 4 groups of 20 senders and 20 receivers, 100 bytes a message; processes",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[2],
        seconds: 0.45,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(messaging),
    },
    Experiment {
        name: "messaging/threads",
        pace: Pace::Fixed,
        summary: "the same in threads (hackbench's -T)",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[2],
        seconds: 0.45,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let mut words = messaging(shape);
            words.push("--threads".to_owned());
            words
        }),
    },
    Experiment {
        name: "stream",
        pace: Pace::Timed,
        summary: "bytes a second over a socket between two processes",
        usual: true,
        memory_mib: GUEST_MIB,
        cpus: &[2],
        seconds: 0.6,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["stream", rate(shape)])),
    },
    Experiment {
        name: "stream/tcp",
        pace: Pace::Timed,
        summary: "netperf's TCP_STREAM over loopback: sends of 16,384 bytes, receives of up to 87,380",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[2],
        seconds: 0.6,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["stream", rate(shape), "--tcp"])),
    },
    Experiment {
        name: "sparse",
        pace: Pace::Apart,
        summary: "a byte in each 2 MiB, held for 10 s: what does it take?",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 13.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["sparse", "350", if shape.icount { "0" } else { "10" }])
        }),
    },
    Experiment {
        name: "huge-latency/fresh",
        pace: Pace::Apart,
        summary: "how long a huge page takes while memory is whole",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 1.5,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["huge-latency", &share(shape, 25)])),
    },
    Experiment {
        name: "huge-latency/fresh-once",
        pace: Pace::Apart,
        summary: "the same; Linux clears each page once, with init_on_alloc=0",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 1.5,
        boot_words: BootWords::Linux(CLEARED_ONCE),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["huge-latency", &share(shape, 25)])),
    },
    Experiment {
        name: "huge-latency/fragmented",
        pace: Pace::Apart,
        summary: "the same where all memory is in pieces: 3 of 4 base pages of each 2 MiB are free",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 12.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            fragmented("1", ["huge-latency", &share(shape, 25)])
        }),
    },
    Experiment {
        name: "compact",
        pace: Pace::Apart,
        summary: "memory in pieces is compacted: what a moved frame costs, and a block that is gained",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 12.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["fragment", "75%", "1", "--", "compact"])),
    },
    Experiment {
        name: "bursts",
        pace: Pace::Apart,
        summary: "bursts of huge faults while jobs come and go in memory that is nearly full, as in a build",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 75.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["bursts", "60"])),
    },
    Experiment {
        name: "unmovable",
        pace: Pace::Apart,
        summary: "free memory in pieces between what cannot move: what does compaction do in vain?",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 210.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["unmovable", "85", "100"])),
    },
    Experiment {
        name: "unmovable/traffic",
        pace: Pace::Apart,
        summary: "the same while a program touches and frees 4 MiB each half second",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 210.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["unmovable", "85", "100", "--traffic"])),
    },
    Experiment {
        name: "stalls",
        pace: Pace::Apart,
        summary: "a program uses memory in pieces while the kernel compacts: how long does it wait?",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 15.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["stalls", "700M", if shape.icount { "3" } else { "10" }])
        }),
    },
    Experiment {
        name: "latency",
        pace: Pace::Apart,
        summary: "how late a thread that sleeps 1 ms wakes up beside long work of the kernel",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 2.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["latency"])),
    },
    Experiment {
        name: "huge-latency/proactive",
        pace: Pace::Apart,
        summary: "the same 20 s later, with vm.compaction_proactiveness at 90",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 31.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let size = share(shape, 25);
            words(["fragment", "92%", "20", "90", "--", "huge-latency", &size])
        }),
    },
    Experiment {
        name: "huge-latency/default",
        pace: Pace::Apart,
        summary: "the same at 20, the default, where 94 % of the free memory is in pieces",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 31.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let size = share(shape, 55);
            words(["fragment", "94%", "20", "20", "--", "huge-latency", &size])
        }),
    },
    Experiment {
        name: "heap/fresh",
        pace: Pace::Apart,
        summary: "touching a heap in huge pages while memory is whole",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 2.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["heap", &share(shape, 35)])),
    },
    Experiment {
        name: "heap/fresh-once",
        pace: Pace::Apart,
        summary: "the same; Linux clears each page once, with init_on_alloc=0",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 2.0,
        boot_words: BootWords::Linux(CLEARED_ONCE),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["heap", &share(shape, 35)])),
    },
    Experiment {
        name: "heap/fragmented",
        pace: Pace::Apart,
        summary: "the same where all memory is in pieces: 3 of 4 base pages of each 2 MiB are free",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 12.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| fragmented("1", ["heap", &share(shape, 35)])),
    },
    Experiment {
        name: "heap/default",
        pace: Pace::Apart,
        summary: "the same 20 s later, at 20, the default, where 94 % of the free memory is in pieces",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 31.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let size = share(shape, 62);
            words(["fragment", "94%", "20", "20", "--", "heap", &size])
        }),
    },
    Experiment {
        name: "hugetlb/kept",
        pace: Pace::Apart,
        summary: "a pool of 1,024 huge pages, where Linux keeps their descriptors",
        usual: false,
        memory_mib: &[3072],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_KEPT),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| pool(shape, 1024)),
    },
    Experiment {
        name: "hugetlb/given-up",
        pace: Pace::Apart,
        summary: "the same where Linux gives most of them up, as Ebb does all",
        usual: false,
        memory_mib: &[3072],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| pool(shape, 1024)),
    },
    Experiment {
        name: "hugetlb/each",
        pace: Pace::Apart,
        summary: "the time of each of 1,024 huge pages, into the pool and back: a histogram",
        usual: false,
        memory_mib: &[3072],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| each(pool(shape, 1024))),
    },
    Experiment {
        name: "hugetlb/all",
        pace: Pace::Apart,
        summary: "a pool of as many huge pages as there is memory for",
        usual: false,
        memory_mib: &[3072],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["hugetlb", "all"])),
    },
    Experiment {
        name: "hugetlb/fault",
        pace: Pace::Timed,
        summary: "faults on 2 MiB pages of the pool",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.6,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words([
                "page-fault",
                "hugetlb",
                &shape.cpus.to_string(),
                rate(shape),
            ])
        }),
    },
    Experiment {
        name: "hugetlb/fault-file",
        pace: Pace::Timed,
        summary: "the same on pages that a file has already: none is taken or cleared",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.6,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words([
                "page-fault",
                "hugetlb-file",
                &shape.cpus.to_string(),
                rate(shape),
            ])
        }),
    },
    Experiment {
        name: "hugetlb/idle",
        pace: Pace::Apart,
        summary: "what a pool of 512 MiB costs the host before it is used, and after",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 24.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| idle_pool(shape, 512)),
    },
    Experiment {
        name: "hugetlb-10240/kept",
        pace: Pace::Apart,
        summary: "10,240 huge pages, the number of the patch series; Linux keeps descriptors",
        usual: false,
        memory_mib: &[24 << 10],
        cpus: &[1],
        seconds: 3.0,
        boot_words: BootWords::Linux(POOL_KEPT),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| pool(shape, 10_240)),
    },
    Experiment {
        name: "hugetlb-10240/given-up",
        pace: Pace::Apart,
        summary: "the same where Linux gives most of them up",
        usual: false,
        memory_mib: &[24 << 10],
        cpus: &[1],
        seconds: 3.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| pool(shape, 10_240)),
    },
    Experiment {
        name: "hugetlb-10240/each",
        pace: Pace::Apart,
        summary: "the time of each of them: a histogram",
        usual: false,
        memory_mib: &[24 << 10],
        cpus: &[1],
        seconds: 3.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| each(pool(shape, 10_240))),
    },
    Experiment {
        name: "hugetlb-10240/each-kept",
        pace: Pace::Apart,
        summary: "the same where Linux keeps descriptors",
        usual: false,
        memory_mib: &[24 << 10],
        cpus: &[1],
        seconds: 3.0,
        boot_words: BootWords::Linux(POOL_KEPT),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| each(pool(shape, 10_240))),
    },
    Experiment {
        name: "hugetlb-32g/2m",
        pace: Pace::Apart,
        summary: "32 GiB in pages of 2 MiB: memory saved",
        usual: false,
        memory_mib: &[40 << 10],
        cpus: &[1],
        seconds: 4.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| pool(shape, 16 << 10)),
    },
    Experiment {
        name: "hugetlb-32g/1g",
        pace: Pace::Apart,
        summary: "32 GiB in pages of 1 GiB: memory saved",
        usual: false,
        memory_mib: &[40 << 10],
        cpus: &[1],
        seconds: 4.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|_| words(["hugetlb", "32", "--1g"])),
    },
    Experiment {
        name: "hugetlb-8g",
        pace: Pace::Apart,
        summary: "what a pool of 8 GiB costs the host before it is used, and after",
        usual: false,
        memory_mib: &[10 << 10],
        cpus: &[1],
        seconds: 60.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| idle_pool(shape, 8 << 10)),
    },
    Experiment {
        name: "pin",
        pace: Pace::Timed,
        summary: "the kernel holds the pages of a process and lets them go",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.7,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["pin", "128M", rate(shape)])),
    },
    Experiment {
        name: "pin/thp",
        pace: Pace::Timed,
        summary: "the same with transparent huge pages",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.7,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["pin", "128M", rate(shape), "--thp"])),
    },
    Experiment {
        name: "pin/hugetlb",
        pace: Pace::Timed,
        summary: "the same with huge pages of the pool",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.7,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["pin", "128M", rate(shape), "--hugetlb"])
        }),
    },
    Experiment {
        name: "pin/1g",
        pace: Pace::Timed,
        summary: "the same with a page of 1 GiB of the pool",
        usual: false,
        memory_mib: &[8192],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| words(["pin", "1G", gib(shape), "--1g"])),
    },
    Experiment {
        name: "pin/hold",
        pace: Pace::Timed,
        summary: "pages of 4 KiB held by one call (vmsplice) and let go by another",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 0.7,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["pin", "128M", rate(shape), "--hold"])
        }),
    },
    Experiment {
        name: "pin/hold-1g",
        pace: Pace::Timed,
        summary: "the same with a page of 1 GiB, whose descriptors Linux gives up",
        usual: false,
        memory_mib: &[8192],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_GIVEN_UP),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["pin", "1G", gib(shape), "--1g", "--hold"])
        }),
    },
    Experiment {
        name: "pin/hold-1g-kept",
        pace: Pace::Timed,
        summary: "the same where Linux keeps them",
        usual: false,
        memory_mib: &[8192],
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Linux(POOL_KEPT),
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            words(["pin", "1G", gib(shape), "--1g", "--hold"])
        }),
    },
    Experiment {
        name: "swap-pressure",
        pace: Pace::Apart,
        summary: "70 % of memory is filled in pieces and freed: when is it back?",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 18.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let stay = match (shape.icount, shape.give_back.gives_back()) {
                (true, _) => "0",
                (false, true) => "15",
                (false, false) => "3",
            };
            words(["swap-pressure", &share(shape, 70), stay])
        }),
    },
    Experiment {
        name: DISK,
        pace: Pace::Apart,
        summary: "a disk in the host's memory is read around the cache",
        usual: false,
        memory_mib: &[512],
        cpus: &[1],
        seconds: 5.0,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Workloads(|shape| {
            let time = if shape.icount {
                RATE_ROUNDS
            } else {
                RATE_SECONDS
            };
            words([DISK, "/dev/vda", time])
        }),
    },
    Experiment {
        name: "boots",
        pace: Pace::Apart,
        summary: "100 guests in a row, of 1 to 8 CPUs; Ebb alone",
        usual: false,
        memory_mib: &[256],
        cpus: &[1],
        seconds: 0.1,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program: ExperimentProgram::Boots,
    },
];

impl Experiment {
    /// Returns whether `wanted` is this experiment's name, or the part of it before a `/`.
    fn is_meant_by(&self, wanted: &str) -> bool {
        self.name == wanted
            || self
                .name
                .strip_prefix(wanted)
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Returns all experiments, in the order in which they run and are listed.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    EXPERIMENTS
        .iter()
        .chain(scale::EXPERIMENTS)
        .chain(parallel::EXPERIMENTS)
        .chain(programs::EXPERIMENTS)
        .chain(give_back::EXPERIMENTS)
        .chain(faults::EXPERIMENTS)
        .chain(elastic::EXPERIMENTS)
}

/// Returns the experiment called `name`, or `None` if this version does not have it. The part of a
/// name before a `/` matches no experiment here.
pub(crate) fn find(name: &str) -> Option<&'static Experiment> {
    all().find(|known| known.name == name)
}

/// Returns the experiments that the user named, in the order of [`all`]. A name may be the part
/// before a `/`, which means all experiments with that part. Returns the usual ones if `wanted` is
/// empty.
///
/// # Errors
/// A message if a name matches no experiment, or two names match the same one.
pub(crate) fn select(wanted: &[String]) -> Result<Vec<&'static Experiment>, String> {
    for (index, name) in wanted.iter().enumerate() {
        let mut meant = all().filter(|known| known.is_meant_by(name)).peekable();
        if meant.peek().is_none() {
            let known: Vec<_> = all().map(|known| known.name).collect();
            return Err(format!(
                "no experiment is called `{name}`; known: {}",
                known.join(", ")
            ));
        }
        let twice = meant.find_map(|known| {
            let other = wanted[..index]
                .iter()
                .find(|other| known.is_meant_by(other))?;
            Some((known.name, other))
        });
        if let Some((known, other)) = twice {
            return Err(format!(
                "{known} is named twice: by `{other}` and by `{name}`"
            ));
        }
    }
    let chosen = all().filter(|known| {
        if wanted.is_empty() {
            known.usual
        } else {
            wanted.iter().any(|name| known.is_meant_by(name))
        }
    });
    Ok(chosen.collect())
}

/// Returns the cases of an experiment: each combination of memory, CPUs and mode of giving memory
/// back. Values that the user chose replace the experiment's own. If instructions are counted,
/// guests have one CPU.
pub(crate) fn cases(experiment: &'static Experiment, options: &CompareOptions) -> Vec<Case> {
    let memories: Vec<Size> = match options.memory {
        Some(memory) => vec![memory],
        None => experiment
            .memory_mib
            .iter()
            .copied()
            .map(Size::mebibytes)
            .collect(),
    };
    let icount = options.icount || experiment.pace == Pace::Counted;
    let cpus: Vec<u32> = match options.cpus {
        // Instructions can only be counted on one CPU.
        _ if icount => vec![1],
        Some(cpus) => vec![cpus],
        None => experiment.cpus.to_vec(),
    };
    let modes = match &experiment.scope {
        _ if !options.give_back.is_empty() => options.give_back.clone(),
        Scope::Usual => usual_modes(icount),
        Scope::Modes { which, .. } => which(),
    };
    let mut cases = Vec::new();
    for memory in memories {
        for &cpus in &cpus {
            for &give_back in &modes {
                cases.push(Case {
                    experiment,
                    shape: Shape {
                        memory,
                        cpus,
                        give_back,
                        icount,
                    },
                });
            }
        }
    }
    cases
}

/// Returns the modes of an experiment that compares the kernels: the one that both kernels know, no
/// giving back, and the default of Ebb's kernel. `icount` says that instructions are counted, which
/// excludes the default mode: the host would change the guest's memory while its CPU runs.
fn usual_modes(icount: bool) -> Vec<GiveBackMode> {
    let mut modes = vec![GiveBackMode::REPORTING, GiveBackMode::OFF];
    if !icount {
        modes.push(GiveBackMode::DEFAULT);
    }
    modes
}

/// The program that a guest runs, which also decides how its success is judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The experiments' program with these arguments; it prints events.
    Workloads(Vec<String>),
    /// A shell script that must print exactly `says` and exit with the status `returns`.
    Script {
        script: String,
        says: String,
        returns: i32,
    },
}

impl Case {
    /// Returns how the guests of this case share the machine. It is [`Pace::Counted`] if
    /// instructions are counted, else the experiment's own.
    pub(crate) fn pace(&self) -> Pace {
        if self.shape.icount {
            Pace::Counted
        } else {
            self.experiment.pace
        }
    }

    /// Returns the number of rounds of each guest. `wanted` is the user's number or `None`; it does
    /// not apply to [`ExperimentProgram::Boots`].
    pub(crate) fn rounds(&self, wanted: Option<u32>) -> Rounds {
        match (&self.experiment.program, wanted) {
            (ExperimentProgram::Boots, _) => Rounds::fixed(BOOTS),
            (_, Some(rounds)) => Rounds::fixed(rounds),
            _ if let Scope::Modes { rounds, .. } = self.experiment.scope => Rounds::fixed(rounds),
            _ => match self.pace() {
                Pace::Apart | Pace::Together => Rounds::fixed(ROUNDS),
                Pace::Counted => Rounds::fixed(ROUNDS_ICOUNT),
                // Without reporting only the cost can be compared, for which one round is enough.
                Pace::Once if self.shape.give_back.gives_back() => Rounds::fixed(ROUNDS),
                Pace::Once => Rounds::fixed(1),
                // There is no figure of the other kernel with which a ratio could settle.
                Pace::Timed | Pace::Fixed if self.shape.give_back == GiveBackMode::DEFAULT => {
                    Rounds::fixed(TURNS_LEAST)
                }
                Pace::Timed | Pace::Fixed if self.shape.give_back.gives_back() => Rounds {
                    least: TURNS_LEAST,
                    most: if self.experiment.seconds < SHORT_SECONDS {
                        TURNS_MOST * 2
                    } else {
                        TURNS_MOST
                    },
                },
                Pace::Timed | Pace::Fixed => Rounds::fixed(TURNS_UNREPORTED),
            },
        }
    }

    /// Returns whether the case can run on `guest`: its kernel supports the mode of giving memory
    /// back, and the experiment is not for Ebb's kernel only.
    pub(crate) fn runs_on(&self, guest: Guest) -> bool {
        let kernel =
            guest == Guest::Ebb || !matches!(self.experiment.program, ExperimentProgram::Boots);
        kernel && self.shape.give_back.is_known_to(guest)
    }

    /// Returns whether the host's costs are sampled during the whole run: for experiments that
    /// compare modes of giving memory back, unless instructions are counted.
    pub(crate) fn is_metered(&self) -> bool {
        matches!(self.experiment.scope, Scope::Modes { .. }) && !self.shape.icount
    }

    /// Returns the shape of the guest in `round`, which counts from 1. Only with
    /// [`ExperimentProgram::Boots`] does it depend on `round`: the number of CPUs changes.
    pub(crate) fn shape(&self, round: u32) -> Shape {
        match self.experiment.program {
            ExperimentProgram::Workloads(_) | ExperimentProgram::Program(_) => self.shape,
            ExperimentProgram::Boots => Shape {
                cpus: if self.shape.icount {
                    1
                } else {
                    round % BOOTS_CPUS_MAX + 1
                },
                ..self.shape
            },
        }
    }

    /// Returns the program that runs in `round`, which counts from 1. It waits for turns if the
    /// case takes turns. Only with [`ExperimentProgram::Boots`] does it depend on `round`.
    pub(crate) fn call(&self, round: u32) -> Call {
        match self.experiment.program {
            ExperimentProgram::Workloads(words) => {
                let mut words = words(&self.shape);
                if self.pace().takes_turns() {
                    words.insert(0, TURNS.to_owned());
                }
                Call::Workloads(words)
            }
            ExperimentProgram::Program(program) => Call::Workloads(program.words()),
            ExperimentProgram::Boots => {
                let returns = i32::try_from(round % 100).unwrap_or(0);
                Call::Script {
                    script: format!(
                        "for i in 1 2 3; do echo boot {round} $i; done | while read line; do \
                         echo \"$line\"; done; (exit 3) & wait $!; echo child $?; exit {returns}"
                    ),
                    says: format!("boot {round} 1\nboot {round} 2\nboot {round} 3\nchild 3\n"),
                    returns,
                }
            }
        }
    }

    /// Returns the arguments of the experiments' program without turns, for a guest that runs
    /// alone. Returns `None` for [`ExperimentProgram::Boots`], which runs a script.
    pub(crate) fn alone(&self) -> Option<Vec<String>> {
        match self.experiment.program {
            ExperimentProgram::Workloads(words) => Some(words(&self.shape)),
            ExperimentProgram::Program(program) => Some(program.words()),
            ExperimentProgram::Boots => None,
        }
    }

    /// Returns the value of `--disk` for the guest, or `None` if the experiment needs no disk.
    pub(crate) fn disk(&self) -> Option<&'static str> {
        (self.experiment.name == DISK).then_some("ram:64M")
    }

    /// Returns the files of the host that are packed into the guest in addition to the experiments'
    /// program. The list is empty unless it runs a program of the host.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self.experiment.program {
            ExperimentProgram::Program(program) => program.files(),
            ExperimentProgram::Workloads(_) | ExperimentProgram::Boots => Vec::new(),
        }
    }

    /// Returns the approximate duration of one round of the program by its clock, without the boot.
    pub(crate) fn guess(&self) -> Duration {
        Duration::from_secs_f64(self.experiment.seconds)
    }

    /// Returns the approximate duration of one round of the program on Linux if instructions are
    /// counted, without the boot. It is zero for programs that have fewer of them than a boot.
    pub(crate) fn counted_guess(&self) -> Duration {
        let words = self.alone();
        words.map_or(Duration::ZERO, |words| counted_time(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Vec<&'static str> {
        let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
        let chosen = select(&wanted).expect("they are known");
        chosen.iter().map(|experiment| experiment.name).collect()
    }

    #[test]
    fn a_name_means_its_variants_and_no_other() {
        assert_eq!(
            names(&["page-fault", "idle"]),
            [
                "idle",
                "page-fault/4k",
                "page-fault/thp",
                "page-fault/thp-once",
                "page-fault/file"
            ]
        );
        assert_eq!(names(&["page-fault/4k"]), ["page-fault/4k"]);
        assert!(names(&[]).contains(&"memhog"));
        assert_eq!(names(&["unmovable"]), ["unmovable", "unmovable/traffic"]);
        for unknown in ["page", "page-fault/", "memhog/x", ""] {
            let error = select(&[unknown.to_owned()]).unwrap_err();
            assert!(error.contains(&format!("`{unknown}`")), "{error}");
        }
    }

    #[test]
    fn faults_of_many_tasks_are_taken_in_each_mode_that_can_be_counted() {
        use crate::machine::GiveBack;
        use clap::Parser;

        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            options: CompareOptions,
        }
        let shapes = |words: &[&str]| -> Vec<(&'static str, u32, GiveBackMode)> {
            let words = ["compare"].iter().chain(words);
            let options = Alone::try_parse_from(words).expect("options").options;
            let chosen = select(&options.experiments).expect("they are known");
            let cases = chosen.into_iter().flat_map(|known| cases(known, &options));
            cases
                .map(|case| (case.experiment.name, case.shape.cpus, case.shape.give_back))
                .collect()
        };
        let modes = [GiveBack::Off, GiveBack::Reporting, GiveBack::Hinting];
        for (words, cpus) in [(&["faults"][..], 2), (&["faults", "--icount"], 1)] {
            let shapes = shapes(words);
            assert_eq!(shapes.len(), 6 * modes.len());
            for mode in modes.map(GiveBackMode::Guest) {
                assert!(shapes.contains(&("faults/thp-16-threads", cpus, mode)));
            }
        }
        let shuffled = find("faults-shuffled/file-16").expect("it is known");
        for guest in [Guest::Ebb, Guest::Linux] {
            let words = shuffled.boot_words.of(guest);
            assert_eq!(words, Some("page_alloc.shuffle=1"));
        }
    }

    #[test]
    fn an_experiment_is_named_once() {
        for (names, experiment) in [
            (["idle", "idle"], "idle"),
            (["page-fault", "page-fault/thp"], "page-fault/thp"),
            (["page-fault/thp", "page-fault"], "page-fault/thp"),
        ] {
            let error = select(&names.map(str::to_owned)).unwrap_err();
            assert!(
                error.starts_with(&format!("{experiment} is named twice")),
                "{error}"
            );
        }
    }

    #[test]
    fn every_experiment_has_a_shape_and_a_name_of_its_own() {
        for (index, experiment) in all().enumerate() {
            assert!(!experiment.memory_mib.is_empty() && !experiment.cpus.is_empty());
            assert!(!all().take(index).any(|e| e.name == experiment.name));
        }
    }
}
