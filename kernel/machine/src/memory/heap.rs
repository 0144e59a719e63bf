//! The kernel heap: slabs of one page for small objects, whole frames for large ones.
//!
//! Each CPU has its own slabs and allocates objects only from them, so CPUs share neither locks nor
//! cache lines of objects. Any CPU may free an object.
//!
//! An empty slab goes back to the frame allocator at once, so the heap caches no memory that a
//! program could use.

use super::memmap::{Descriptor, Kind, free_block};
use super::{percpu, pressure};
use crate::arch::layout::PAGE_SIZE;
use crate::arch::spin::SpinLock;
use crate::arch::{MAX_CPUS, cpu_id, phys_to_virt, virt_to_phys};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use ebb_mm::{Frame, Mobility, Order, Request};
use logic::slab::{self, MAX_SIZE, Objects, SIZES};

/// The largest request that may use the reserve. The kernel makes such requests for itself and
/// mostly cannot handle their failure. Larger ones depend on a size that a program has chosen, come
/// through `try_reserve`, and may fail.
const ASSURED_BYTES: usize = 16 << 10;

/// A CPU's slabs of a size class that have room: the frame number of the first one; 0 if there is
/// none.
struct Class {
    partial: u64,
}

/// The slabs of one CPU that have room, in separate cache lines.
#[repr(align(64))]
struct Shelf {
    classes: [SpinLock<Class>; SIZES.len()],
}

/// The heap.
struct Heap {
    shelves: [Shelf; MAX_CPUS],
}

#[global_allocator]
static HEAP: Heap = Heap {
    shelves: [const {
        Shelf {
            classes: [const { SpinLock::new(Class { partial: 0 }) }; SIZES.len()],
        }
    }; MAX_CPUS],
};

/// The CPU and size class of a slab, as its descriptor records them.
#[derive(Copy, Clone)]
struct Home {
    cpu: usize,
    class: usize,
}

impl Home {
    /// Returns the home of a new slab of this CPU for objects of size class `class`.
    #[inline]
    fn own(class: usize) -> Self {
        Self {
            cpu: cpu_id(),
            class,
        }
    }

    #[inline]
    fn of(descriptor: &Descriptor) -> Self {
        let word = descriptor.class();
        Self {
            cpu: word / SIZES.len(),
            class: word % SIZES.len(),
        }
    }

    fn to_word(self) -> u16 {
        u16::try_from(self.cpu * SIZES.len() + self.class).unwrap_or(0)
    }

    #[inline]
    fn slabs(self) -> &'static SpinLock<Class> {
        &HEAP.shelves[self.cpu].classes[self.class]
    }
}

const _: () = assert!(MAX_CPUS * SIZES.len() <= u16::MAX as usize);

impl Class {
    fn link(&mut self, frame: Frame) {
        let descriptor = Descriptor::get(frame);
        // Relaxed (here and below): slab fields are guarded by the class lock.
        descriptor.next.store(self.partial, Ordering::Relaxed);
        descriptor.previous.store(0, Ordering::Relaxed);
        if self.partial != 0 {
            let head = Descriptor::get(Frame::new(self.partial));
            head.previous.store(frame.number(), Ordering::Relaxed);
        }
        self.partial = frame.number();
    }

    fn unlink(&mut self, frame: Frame) {
        let descriptor = Descriptor::get(frame);
        let next = descriptor.next.load(Ordering::Relaxed);
        let previous = descriptor.previous.load(Ordering::Relaxed);
        if next != 0 {
            Descriptor::get(Frame::new(next))
                .previous
                .store(previous, Ordering::Relaxed);
        }
        if previous == 0 {
            self.partial = next;
        } else {
            Descriptor::get(Frame::new(previous))
                .next
                .store(next, Ordering::Relaxed);
        }
    }

    /// Allocates an object of size class `class`, which is that of `self`, from a slab that has
    /// room. Returns `None` if there is no such slab.
    fn take(&mut self, class: usize) -> Option<NonNull<u8>> {
        if self.partial == 0 {
            return None;
        }
        let frame = Frame::new(self.partial);
        let descriptor = Descriptor::get(frame);
        let base = phys_to_virt(frame.address());
        let mut objects = Objects::from_word(descriptor.objects.load(Ordering::Relaxed));
        let object = objects.take(slab::capacity(class), |free| {
            // SAFETY: a free object of this slab, at least 8 bytes, aligned to 8; its first two
            // hold the link that `free` wrote.
            unsafe {
                base.add(usize::from(free) * SIZES[class])
                    .cast::<u16>()
                    .read()
            }
        })?;
        descriptor
            .objects
            .store(objects.to_word(), Ordering::Relaxed);
        if objects.used() == slab::capacity(class) {
            self.unlink(frame);
        }
        // SAFETY: the object lies in the slab's page.
        NonNull::new(unsafe { base.add(usize::from(object) * SIZES[class]) })
    }

    /// Frees the object at `at` of size class `class`, which is in the slab `frame`. Returns `true`
    /// if the slab is now empty: the slab is off the list then, and the caller frees it.
    ///
    /// # Panics
    /// If no object begins at `at`.
    fn put(&mut self, class: usize, frame: Frame, at: *mut u8) -> bool {
        let descriptor = Descriptor::get(frame);
        let offset = u16::try_from(at as usize % PAGE_SIZE).unwrap_or(u16::MAX);
        let Some(object) = slab::object_at(class, offset) else {
            panic!("{at:p} is not a heap object")
        };
        let mut objects = Objects::from_word(descriptor.objects.load(Ordering::Relaxed));
        let was_full = objects.used() == slab::capacity(class);
        // SAFETY: the object is the caller's to free, at least 8 bytes, aligned to 8.
        objects.put(object, |next| unsafe { at.cast::<u16>().write(next) });
        descriptor
            .objects
            .store(objects.to_word(), Ordering::Relaxed);
        if objects.used() == 0 {
            if !was_full {
                self.unlink(frame);
            }
            return true;
        }
        if was_full {
            self.link(frame);
        }
        false
    }
}

/// Allocates a block of `order` for the heap, and marks it as of the use `kind`. May wait for
/// memory. If `assured` is set, the block may come from the reserve in the end. Returns its first
/// frame, or `None` if there is no memory.
fn frames(order: Order, kind: Kind, assured: bool) -> Option<Frame> {
    let request = Request::new(order, Mobility::Unmovable);
    let frame = pressure::allocate(request, assured)?;
    percpu::add(kind.count(), order.frames());
    Descriptor::get(frame).take(kind, order);
    Some(frame)
}

fn small(class: usize) -> Option<NonNull<u8>> {
    if let Some(object) = Home::own(class).slabs().lock().take(class) {
        return Some(object);
    }
    // Without the lock: getting a frame may wait, and the thread go on elsewhere.
    let frame = frames(Order::BASE, Kind::Slab, true)?;
    let descriptor = Descriptor::get(frame);
    let home = Home::own(class);
    descriptor.set_class(home.to_word());
    let mut partial = home.slabs().lock();
    partial.link(frame);
    partial.take(class)
}

fn large(layout: Layout) -> Option<NonNull<u8>> {
    let bytes = layout.size().max(layout.align());
    let order = Order::at_least(bytes.div_ceil(PAGE_SIZE) as u64)?;
    let frame = frames(order, Kind::Large, bytes <= ASSURED_BYTES)?;
    NonNull::new(phys_to_virt(frame.address()))
}

fn head(at: *mut u8) -> (Frame, &'static Descriptor) {
    let frame = Frame::containing(virt_to_phys(at));
    (frame, Descriptor::get(frame))
}

// SAFETY: objects of slabs and blocks of frames are disjoint, aligned as their class or order is,
// and stay where they are until they are freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let object = match slab::class_of(layout.size(), layout.align()) {
            Some(class) if layout.size() <= MAX_SIZE => small(class),
            _ => large(layout),
        };
        object.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        let (frame, descriptor) = head(at);
        match descriptor.kind() {
            Some(Kind::Slab) => {
                let home = Home::of(descriptor);
                let empty = home.slabs().lock().put(home.class, frame, at);
                if empty {
                    descriptor.clear_slab();
                    percpu::subtract(Kind::Slab.count(), 1);
                    percpu::free(frame, Order::BASE);
                }
            }
            Some(Kind::Large) => free_block(frame, descriptor),
            kind => panic!("{at:p} is freed, but its frame is {kind:?}"),
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let room = match slab::class_of(layout.size(), layout.align()) {
            Some(class) => SIZES[class],
            None => PAGE_SIZE << head(at).1.order().get(),
        };
        // A quarter of the room is the least that is worth keeping it for.
        if size <= room && size > room / 4 {
            return at;
        }
        // SAFETY: by the contract of `realloc`, size and alignment make a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's contract, passed on; the copy is inside both objects.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                ptr::copy_nonoverlapping(at, to, layout.size().min(size));
                self.dealloc(at, layout);
            }
            to
        }
    }
}
