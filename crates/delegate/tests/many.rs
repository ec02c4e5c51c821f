//! Many clients of which few ask at a time.

use linewise_delegate::{Client, Domain};
use within::within;

mod within;

fn add(value: &mut u64, operand: u64) -> u64 {
    *value += operand;
    *value
}

const CLIENTS: usize = 300;

#[test]
fn clients_that_were_idle_for_long_are_answered() {
    within(60, || {
        let domain = Domain::dedicated(1).build().unwrap();
        let value = domain.own(0, || 0u64).unwrap();
        let mut clients: Vec<Client<'_>> = (0..CLIENTS).map(|_| domain.client().unwrap()).collect();
        let mut asked = 0;
        for round in 0..10 {
            // One asks for long, the others not at all.
            let passes = domain.shard_stats()[0].passes;
            while domain.shard_stats()[0].passes < passes + 5000 {
                asked += 1;
                assert_eq!(clients[round * 17].call(&value, add, 1), Ok(asked));
            }
            for client in &clients {
                asked += 1;
                assert_eq!(client.call(&value, add, 1), Ok(asked));
            }
            // Some leave, and others come, while most are idle.
            clients.swap_remove(round);
            clients.push(domain.client().unwrap());
            let ends = domain.own(0, || 0u64).unwrap();
            clients[0].call_post(&ends, add, 1).unwrap();
            drop(ends);
        }
        drop(clients);
        domain.shutdown().unwrap();
    });
}
