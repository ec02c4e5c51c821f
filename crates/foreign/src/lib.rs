//! What strangers name. A program that is recorded, its debug information and a recording that was sent
//! by somebody else all name files, and have names of their own. This is the one door for both:
//!
//! - [`open`], [`open_in`] and [`read`]: a file is opened only if it is a regular one. Opening a pipe would wait
//!   for whoever writes to it, and opening a device acts: a terminal is made, a watchdog armed.
//! - [`open_public`]: what is shown to others is opened only if everybody may read it.
//! - [`sanitise`] and [`json`]: a name is shown, and not obeyed by the terminal.
//!
//! ```
//! let error = linewise_foreign::open("/dev/null".as_ref()).unwrap_err();
//! assert_eq!(error.to_string(), "it is a device, and no regular file");
//! assert_eq!(linewise_foreign::sanitise("a\x1b[2Jb"), "a\\u{1b}[2Jb");
//! ```

#![warn(clippy::too_many_lines)]

mod file;
mod text;

pub use file::{is_trusted_owner, open, open_at, open_in, open_public, open_without_links, read};
pub use text::{is_safe, json, sanitise};
