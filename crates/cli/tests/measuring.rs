//! `linewise bench reuse`: real programs that know their distances, under the exact source.

use std::process::Command;

use crate::util::Place;

#[test]
fn the_distances_of_threads_and_of_a_ring_are_measured_exactly() {
    let qemu = format!("qemu-{}", std::env::consts::ARCH);
    if Command::new(&qemu).arg("--version").output().is_err() {
        eprintln!("skip: {qemu} is not installed");
        return;
    }
    let place = Place::new();
    let args = [
        "bench",
        "reuse",
        "--gate",
        "--json",
        "--only",
        "multi-thread,ring,Short-RD Decreasing Case 2",
    ];
    let output = place.finish(&mut place.linewise(args));
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let json = output.json();
    let rows = json["reuse"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row["accesses"].as_u64().unwrap() > 50_000, "{row}");
        let scores = row["scores"].as_array().unwrap();
        for scope in ["temporal", "spatial", "shared"] {
            let exact = scores
                .iter()
                .find(|score| score["scope"] == scope && score["mode"] == "exact")
                .unwrap();
            assert!(exact["time"].as_f64().unwrap() >= 0.99, "{exact}");
            assert!(exact["stack"].as_f64().unwrap() >= 0.99, "{exact}");
            assert!(exact["kinds"].as_f64().unwrap() >= 0.99, "{exact}");
        }
    }
    // Of the ring, what its reader reads has always been stored to.
    let ring = rows.iter().find(|row| row["name"] == "ring").unwrap();
    assert!(ring["invalidated"].as_f64().unwrap() > 0.4, "{ring}");
    assert!(place.leftovers().is_empty());
}
