//! Domains of each kind.

use linewise_delegate::{Domain, Ordered, Policy};

pub(crate) fn domains() -> Vec<Domain> {
    let flat = |policy| Domain::flat(2).policy(policy).build().unwrap();
    vec![
        Domain::dedicated(1).build().unwrap(),
        Domain::dedicated(2).request_lines(1).build().unwrap(),
        Domain::dedicated(3).direct_write().build().unwrap(),
        Domain::dedicated(2)
            .ordered(Ordered::Client)
            .build()
            .unwrap(),
        Domain::flat(1).build().unwrap(),
        flat(Policy::Queue),
        flat(Policy::ServeWhenBlocked),
        flat(Policy::Doorbell),
    ]
}
