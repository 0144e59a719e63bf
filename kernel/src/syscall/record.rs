//! Structures of the ABI that calls read and write, with the layout of Linux's headers. None has
//! padding outside of a field, so all bytes of a copy are initialized.

use crate::fs::epoll::Event;
use core::mem::offset_of;
use linux_raw_sys::{general as raw, net};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Fails the build if a structure differs from Linux's.
macro_rules! as_in_linux {
    ($ours:ident is $linux:ty: $($field:ident $its:ident),*) => {
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<$linux>());
            $(assert!(offset_of!($ours, $field) == offset_of!($linux, $its));)*
        };
    };
}

/// `struct timespec` and `struct timeval`: seconds, and nanoseconds or microseconds.
pub(super) type Time = [u64; 2];

const _: () = assert!(size_of::<Time>() == size_of::<raw::timespec>());
const _: () = assert!(size_of::<Time>() == size_of::<raw::timeval>());
const _: () = assert!(size_of::<[Time; 2]>() == size_of::<raw::itimerspec>());

/// `struct stat`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Stat {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) links: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) padding: u32,
    pub(super) rdev: u64,
    pub(super) size: u64,
    pub(super) block_size: u64,
    pub(super) blocks: u64,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    pub(super) unused: [u64; 3],
}

as_in_linux!(Stat is raw::stat: device st_dev, inode st_ino, links st_nlink, mode st_mode,
    uid st_uid, gid st_gid, rdev st_rdev, size st_size, block_size st_blksize, blocks st_blocks,
    accessed st_atime, modified st_mtime, changed st_ctime);

/// `struct statx_timestamp`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatxTime {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) reserved: u32,
}

as_in_linux!(StatxTime is raw::statx_timestamp: seconds tv_sec, nanos tv_nsec);

/// `struct statx`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Statx {
    pub(super) mask: u32,
    pub(super) block_size: u32,
    pub(super) attributes: u64,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    pub(super) padding: u16,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) attributes_mask: u64,
    pub(super) accessed: StatxTime,
    pub(super) born: StatxTime,
    pub(super) changed: StatxTime,
    pub(super) modified: StatxTime,
    /// The major and minor numbers of the device that the file is.
    pub(super) rdev: [u32; 2],
    /// The major and minor numbers of the device that the file is on.
    pub(super) device: [u32; 2],
    pub(super) mount: u64,
    pub(super) unused: [u64; 13],
}

as_in_linux!(Statx is raw::statx: mask stx_mask, block_size stx_blksize, links stx_nlink,
    uid stx_uid, gid stx_gid, mode stx_mode, inode stx_ino, size stx_size, blocks stx_blocks,
    accessed stx_atime, changed stx_ctime, modified stx_mtime, rdev stx_rdev_major,
    device stx_dev_major, mount stx_mnt_id);

/// `struct statfs`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatFs {
    pub(super) magic: u64,
    pub(super) block_size: u64,
    pub(super) blocks: u64,
    pub(super) free_blocks: u64,
    pub(super) available_blocks: u64,
    pub(super) files: u64,
    pub(super) free_files: u64,
    pub(super) id: u64,
    pub(super) name_length: u64,
    pub(super) fragment_size: u64,
    pub(super) flags: u64,
    pub(super) unused: [u64; 4],
}

as_in_linux!(StatFs is raw::statfs: magic f_type, block_size f_bsize, blocks f_blocks,
    free_blocks f_bfree, available_blocks f_bavail, files f_files, free_files f_ffree, id f_fsid,
    name_length f_namelen, fragment_size f_frsize, flags f_flags);

/// `struct ipc64_perm`, which linux-raw-sys does not have: the owner and the permissions of an
/// object.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IpcPerm {
    pub(super) key: i32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) maker_uid: u32,
    pub(super) maker_gid: u32,
    pub(super) mode: u32,
    pub(super) round: u16,
    pub(super) padding: [u16; 3],
    pub(super) unused: [u64; 2],
}

/// `struct shmid64_ds`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ShmDs {
    pub(super) owner: IpcPerm,
    pub(super) bytes: u64,
    pub(super) attached: i64,
    pub(super) detached: i64,
    pub(super) changed: i64,
    pub(super) made_by: u32,
    pub(super) last_by: u32,
    pub(super) attachments: u64,
    pub(super) unused: [u64; 2],
}

const _: () = assert!(size_of::<ShmDs>() == 112 && offset_of!(ShmDs, attachments) == 88);

/// `struct shminfo64`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ShmLimits {
    pub(super) most_bytes: u64,
    pub(super) least_bytes: u64,
    pub(super) most_segments: u64,
    pub(super) most_attached: u64,
    pub(super) most_pages: u64,
    pub(super) unused: [u64; 4],
}

/// `struct shm_info`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ShmInfo {
    pub(super) segments: u32,
    pub(super) padding: u32,
    pub(super) pages: u64,
    pub(super) resident: u64,
    pub(super) swapped: u64,
    pub(super) swap_attempts: u64,
    pub(super) swap_successes: u64,
}

/// `struct sembuf`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SemBuf {
    pub(super) semaphore: u16,
    pub(super) change: i16,
    pub(super) flags: u16,
}

/// `struct semid64_ds`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SemDs {
    pub(super) owner: IpcPerm,
    pub(super) used: i64,
    pub(super) padding: u64,
    pub(super) changed: i64,
    pub(super) more_padding: u64,
    pub(super) count: u64,
    pub(super) unused: [u64; 2],
}

const _: () = assert!(size_of::<SemDs>() == 104 && offset_of!(SemDs, count) == 80);

/// `struct seminfo`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SemInfo {
    pub(super) map: u32,
    pub(super) most_sets: u32,
    pub(super) most: u32,
    pub(super) most_undo: u32,
    pub(super) most_of_set: u32,
    pub(super) most_operations: u32,
    pub(super) undo_entries: u32,
    pub(super) sets_or_undo_size: u32,
    pub(super) most_value: u32,
    pub(super) semaphores_or_adjustment: u32,
}

/// `struct msqid64_ds`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MsgDs {
    pub(super) owner: IpcPerm,
    pub(super) sent: i64,
    pub(super) received: i64,
    pub(super) changed: i64,
    pub(super) bytes: u64,
    pub(super) messages: u64,
    pub(super) most_bytes: u64,
    pub(super) last_sender: u32,
    pub(super) last_receiver: u32,
    pub(super) unused: [u64; 2],
}

const _: () = assert!(size_of::<MsgDs>() == 120 && offset_of!(MsgDs, most_bytes) == 88);

/// `struct msginfo`, which linux-raw-sys does not have.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MsgInfo {
    pub(super) pool: u32,
    pub(super) map: u32,
    pub(super) most_message: u32,
    pub(super) most_queue: u32,
    pub(super) most_queues: u32,
    pub(super) segment_size: u32,
    pub(super) messages: u32,
    pub(super) segments: u16,
    pub(super) padding: u16,
}

/// `struct mq_attr`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MqAttr {
    pub(super) flags: i64,
    pub(super) most_messages: i64,
    pub(super) message_size: i64,
    pub(super) messages: i64,
    pub(super) unused: [i64; 4],
}

/// `struct flock`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Flock {
    pub(super) kind: u16,
    pub(super) whence: u16,
    pub(super) padding: u32,
    pub(super) start: i64,
    pub(super) length: i64,
    pub(super) pid: i32,
    pub(super) more_padding: u32,
}

as_in_linux!(Flock is raw::flock: kind l_type, whence l_whence, start l_start, length l_len,
    pid l_pid);

/// `struct open_how`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenHow {
    pub(super) flags: u64,
    pub(super) mode: u64,
    pub(super) resolve: u64,
}

as_in_linux!(OpenHow is raw::open_how: flags flags, mode mode, resolve resolve);

/// `struct futex_waitv`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FutexWaitV {
    pub(super) value: u64,
    pub(super) address: u64,
    pub(super) flags: u32,
    pub(super) reserved: u32,
}

as_in_linux!(FutexWaitV is raw::futex_waitv: value val, address uaddr, flags flags,
    reserved __reserved);

/// `struct sched_attr`, which linux-raw-sys does not have.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SchedAttr {
    pub(super) size: u32,
    pub(super) policy: u32,
    pub(super) flags: u64,
    pub(super) nice: i32,
    pub(super) priority: u32,
    pub(super) runtime: u64,
    pub(super) deadline: u64,
    pub(super) period: u64,
    pub(super) least_clamp: u32,
    pub(super) most_clamp: u32,
}

/// `struct clone_args`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CloneArgs {
    pub(super) flags: u64,
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
    pub(super) set_tid: u64,
    pub(super) set_tid_size: u64,
    pub(super) cgroup: u64,
}

as_in_linux!(CloneArgs is raw::clone_args: flags flags, pidfd pidfd, child_tid child_tid,
    parent_tid parent_tid, exit_signal exit_signal, stack stack, stack_size stack_size, tls tls,
    set_tid set_tid, set_tid_size set_tid_size, cgroup cgroup);

/// `struct pollfd`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct PollFd {
    pub(super) fd: i32,
    pub(super) events: u16,
    pub(super) found: u16,
}

as_in_linux!(PollFd is raw::pollfd: fd fd, events events, found revents);

as_in_linux!(Event is raw::epoll_event: events events, data data);

/// `struct iocb`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ControlBlock {
    pub(super) data: u64,
    pub(super) key: u32,
    pub(super) rw_flags: u32,
    pub(super) opcode: u16,
    pub(super) priority: u16,
    pub(super) fd: i32,
    pub(super) buffer: u64,
    pub(super) count: u64,
    pub(super) offset: i64,
    pub(super) reserved: u64,
    pub(super) flags: u32,
    pub(super) signal_fd: i32,
}

const _: () = assert!(size_of::<ControlBlock>() == 64);

/// `struct io_event`: the program's data, the control block's address, and two results.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoEvent {
    pub(super) data: u64,
    pub(super) object: u64,
    pub(super) result: i64,
    pub(super) second_result: i64,
}

/// `struct msghdr`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MessageHeader {
    pub(super) name: u64,
    pub(super) name_length: u32,
    pub(super) padding: u32,
    pub(super) segments: u64,
    pub(super) segment_count: u64,
    pub(super) control: u64,
    pub(super) control_length: u64,
    pub(super) flags: u32,
    pub(super) more_padding: u32,
}

as_in_linux!(MessageHeader is net::msghdr: name msg_name, name_length msg_namelen,
    segments msg_iov, segment_count msg_iovlen, control msg_control,
    control_length msg_controllen, flags msg_flags);

/// `struct mmsghdr`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ManyHeader {
    pub(super) header: MessageHeader,
    pub(super) length: u32,
    pub(super) padding: u32,
}

as_in_linux!(ManyHeader is net::mmsghdr: header msg_hdr, length msg_len);
