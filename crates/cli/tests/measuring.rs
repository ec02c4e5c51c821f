//! `linewise bench reuse`: real programs that know their distances, under the exact source; and
//! `linewise bench fetch-add`: short samples of everybody who takes part.

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

#[test]
fn the_contenders_of_fetch_and_add_come_as_json_and_as_a_page() {
    let place = Place::new();
    let args = [
        "bench",
        "fetch-add",
        "--only",
        "atomic,ticket,async,flat-bound",
        "--threads",
        "2",
        "--variables",
        "1,64",
        "--operation",
        "add,sqrt",
        "--request-lines",
        "4,16",
        "--seconds",
        "0.01",
        "--samples",
        "1",
        "--bound",
        "16",
        "--one-cpu",
        "--html",
        "page.html",
        "--json",
    ];
    let output = place.finish(&mut place.linewise(args));
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let json = output.json();
    assert_eq!(json["schema"], 1);
    // Four threads on one CPU: more numbers of servers, and no state to tell rows by.
    let crowded = json["one_cpu"]["rows"].as_array().unwrap();
    assert!(crowded.iter().any(|row| row["contender"] == "async-2s"));
    assert!(crowded.iter().all(|row| row["state"].is_null()));
    let experiment = &json["experiment"];
    let contenders: Vec<&str> = experiment["contenders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(
        contenders,
        [
            "ticket",
            "atomic",
            "async-1s 4+8",
            "async-1s",
            "flat-bound 4",
            "flat-bound"
        ]
    );
    let samples = experiment["samples"].as_array().unwrap();
    assert_eq!(samples.len(), contenders.len() * 2 * 2);
    for sample in samples {
        assert!(sample["operations"].as_u64().unwrap() > 0, "{sample}");
    }
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("By request lines") && page.contains("all threads on one CPU"));
}

#[test]
fn a_contender_that_does_not_exist_is_answered_with_those_that_do() {
    let place = Place::new();
    let output = place.finish(&mut place.linewise(["bench", "fetch-add", "--only", "futex"]));
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("pthread-mutex"), "{}", output.stderr);
}
