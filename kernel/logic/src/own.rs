//! Values of a task that only the task itself reads and replaces, without a lock.
//!
//! Code that runs as the task lends such a value to a closure. Nothing may replace the value in the
//! meantime, because the closure has a reference to it. So replacing takes the task's [`Token`],
//! and no closure can have that:
//!
//! - A task gets one token each time it enters the kernel from user mode, and its functions pass
//!   the token on as `&mut Token`.
//! - A token is not `Send`, and the closure must be. So the closure cannot have captured the token
//!   or a reference to it.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

/// The right to replace the own values of the current task. A token occupies no memory.
///
/// A token cannot be made without `unsafe`:
///
/// ```compile_fail,E0133
/// let token = logic::own::Token::new();
/// ```
///
/// It stays with its task:
///
/// ```compile_fail,E0277
/// fn hand_over(token: logic::own::Token) {
///     std::thread::spawn(move || drop(token));
/// }
/// ```
#[derive(Debug)]
pub struct Token(PhantomData<*mut ()>);

impl Token {
    /// Returns a token.
    ///
    /// # Safety
    /// The task that calls this has no other token, and lends no value of an [`Own`] now.
    #[inline]
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// A value that only its task accesses: it lends the value by [`Self::with`], and replaces it by
/// [`Self::replace`]. While the task is not running, the CPU that switches it may read the value.
///
/// ```
/// use logic::own::{Own, Token};
///
/// fn rename(name: &Own<String>, token: &mut Token) -> String {
///     // SAFETY: the current thread alone uses `name`.
///     let new = unsafe { name.with(|name| format!("new {name}")) };
///     // SAFETY: the current thread alone uses `name`, and `token` is its token.
///     unsafe { name.replace(new, token) }
/// }
///
/// // SAFETY: the current thread has no other token.
/// let mut token = unsafe { Token::new() };
/// let name = Own::new("name".to_string());
/// assert_eq!(rename(&name, &mut token), "name");
/// assert_eq!(rename(&name, &mut token), "new name");
/// ```
///
/// The closure cannot keep the reference:
///
/// ```compile_fail,E0521
/// # use logic::own::Own;
/// fn keep(name: &Own<String>) {
///     let mut kept = None;
///     // SAFETY: the current thread alone uses `name`.
///     unsafe { name.with(|name| kept = Some(name)) };
/// }
/// ```
///
/// Nor can the closure return it:
///
/// ```compile_fail
/// # use logic::own::Own;
/// fn leak(name: &Own<String>) -> &String {
///     // SAFETY: the current thread alone uses `name`.
///     unsafe { name.with(|name| name) }
/// }
/// ```
///
/// The closure cannot replace the value that it is looking at:
///
/// ```compile_fail,E0277
/// # use logic::own::{Own, Token};
/// fn replace(name: &Own<String>, token: &mut Token) {
///     // SAFETY: the current thread alone uses `name`, and `token` is its token.
///     unsafe {
///         name.with(|old| {
///             name.replace(String::new(), token);
///             assert_eq!(old, "name");
///         });
///     }
/// }
/// ```
pub struct Own<T>(UnsafeCell<T>);

// SAFETY: by the contracts of the methods, the value is used by its task alone, or by the CPU that
// switches the task. `Send`, because tasks change CPUs and others may drop the value.
unsafe impl<T: Send> Sync for Own<T> {}

impl<T> Own<T> {
    /// Returns a cell with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `look` with the value, and returns its result.
    ///
    /// # Safety
    /// The caller runs as the task whose value this is, or is the CPU that switches this task.
    #[inline]
    pub unsafe fn with<R>(&self, look: impl FnOnce(&T) -> R + Send) -> R {
        // SAFETY: only the task replaces the value, and the task is here or does not run. `look`
        // has no token, because a token is not `Send`.
        look(unsafe { &*self.0.get() })
    }

    /// Replaces the value by `new`, and returns the former value.
    ///
    /// # Safety
    /// The caller runs as the task whose value this is, and `_token` is a token of this task.
    #[inline]
    pub unsafe fn replace(&self, new: T, _token: &mut Token) -> T {
        // SAFETY: the caller is the task itself, so nothing else replaces the value now. Nothing
        // refers to the value, because the caller has the token, see `with`.
        unsafe { self.0.get().replace(new) }
    }
}

impl<T> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}
