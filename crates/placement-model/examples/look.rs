//! scratch
use linewise_placement_model::*;
fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(5);
    let hold = if std::env::var("PIN").is_ok() {
        Hold::Cpu
    } else {
        Hold::Domain
    };
    let th = std::env::var("TH")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1.0);
    let all: Vec<_> = workloads()
        .into_iter()
        .filter(|w| only.is_empty() || only.iter().any(|o| w.name.contains(o.as_str())))
        .collect();
    let effort = Effort {
        seeds,
        seconds: 20.0,
        steps: 1000,
    };
    let rows = Experiment::new(all, effort).rows(&PolicyKind::ALL, Setup { thresholds: th, hold }, |_| true, &|_| {});
    println!(
        "{:32} {:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8} moves sam/mat(late) paper",
        "", "bal", "cas", "event", "llc", "random", "sam", "matrix", "oracle"
    );
    for r in rows {
        print!("{:32} ", format!("{} {}", r.name, r.machine));
        for p in PolicyKind::ALL {
            print!("{:8.3}", r.policies[&p].speedup);
        }
        let (s, m) = (
            r.policies[&PolicyKind::Sam],
            r.policies[&PolicyKind::Matrix],
        );
        println!(
            "  {:.1}/{:.1} ({}/{}) {:?}",
            s.moves, m.moves, s.late_moves, m.late_moves, r.paper_moves
        );
    }
}
