//! Objects followed from their allocation to their end: object access histories (Pesterev, 2010, section
//! 5.3).
//!
//! There a new object is held back until the debug registers of all CPUs are set. From outside nobody can
//! hold an allocation back, and arming takes longer than most objects live. But allocators hand out the same
//! addresses again and again. So an *address* is watched, at one to three places of 8 bytes, in all threads of
//! the process, and what trapped is cut into lives by what the heap recorder tells:
//!
//! ```text
//! heap recorder   ──alloc───free──alloc──────────free──────alloc── ...
//! watch             ├ armed in all threads ───────────────┤
//! traps                   ×        ×   ×    ×  ×              a life counts if it lies within the watch
//! ```

mod cut;
mod plan;
mod sites;
mod watch;

pub(crate) use sites::{HeapEvent, HeapEventKind, Observed, SiteKey, Sites};
pub(crate) use watch::{Closed, LIVES, ObjectWatch, THREADS};
