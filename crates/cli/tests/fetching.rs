//! Debug info that `debuginfod-find` fetches, where the environment names servers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use linewise_recording::{Frame, Map, Object, Recording, write_table};

use crate::util::{Place, emulator, skip};

/// Runs a tool in the folder of `place`; `None`, with the reason said, where it is not there.
fn tool(place: &Place, words: &[&str]) -> Option<()> {
    let output = place.command(words[0]).args(&words[1..]).output();
    let Ok(output) = output else {
        skip(&format!("{} does not run", words[0]));
        return None;
    };
    assert!(output.status.success(), "{words:?}: {output:?}");
    Some(())
}

/// A recording without names of a stripped program whose debug info is in the file `debug`; and the program's build id.
fn recorded(place: &Place) -> Option<String> {
    let source = "fixtures/programs/counters.c";
    place.compile("gcc", source, "program", &["-Wl,--build-id"])?;
    tool(place, &["objcopy", "--only-keep-debug", "program", "debug"])?;
    tool(place, &["strip", "program"])?;
    if !emulator() {
        return None;
    }
    let words = [
        "record",
        "--source",
        "exact",
        "-o",
        "one",
        "--",
        "./program",
        "0.2",
    ];
    let output = place.finish(place.linewise(words).env_remove("DEBUGINFOD_URLS"));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let folder = place.path("one.linewise");
    let maps: Vec<Map> = Recording::open(&folder).unwrap().read().unwrap();
    let is_program = |map: &&Map| Path::new(&map.path).file_name() == Some("program".as_ref());
    let build_id = maps.iter().find(is_program).unwrap().build_id.clone();
    // As linewise leaves a recording that was killed.
    write_table::<Frame>(&folder, &[]).unwrap();
    write_table::<Object>(&folder, &[]).unwrap();
    Some(build_id)
}

/// A client on the search path that notes that it was asked, and then does what `script` says.
fn client(place: &Place, script: &str) {
    let folder = place.path("bin");
    fs::create_dir_all(&folder).unwrap();
    let (text, client) = (place.path("text"), folder.join("debuginfod-find"));
    let asked = place.path("asked");
    let lines = format!("#!/bin/sh\necho $2 >>{}\n{script}\n", asked.display());
    fs::write(&text, lines).unwrap();
    // What this process has open to write, a child of another test has, too, and then it cannot be run.
    let copied = Command::new("install")
        .args(["-m", "755"])
        .args([&text, &client])
        .status();
    assert!(copied.unwrap().success());
}

/// Whether the report names the program's function and its file of source, and whether the client was asked.
fn report(place: &Place, urls: &str) -> (bool, bool) {
    let _ = fs::remove_file(place.path("asked"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", place.path("bin").display());
    let mut command = place.linewise(["report", "one", "--json"]);
    command.env("PATH", path).env("DEBUGINFOD_URLS", urls);
    let cache = place.path("cache");
    let output = place.finish(command.env("DEBUGINFOD_CACHE_PATH", cache));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let is_named = output.stdout.contains("\"worker\"") && output.stdout.contains("counters.c");
    (is_named, place.path("asked").exists())
}

#[test]
fn a_client_is_asked_where_servers_are_named_and_what_it_does_never_costs_the_report() {
    const URLS: &str = "http://127.0.0.1:1";

    let place = Place::new();
    let Some(build_id) = recorded(&place) else {
        return;
    };
    let fetch = format!(
        "[ $1 = debuginfo ] && [ $2 = {build_id} ] || exit 1
         mkdir -p $DEBUGINFOD_CACHE_PATH/$2 && cp {} $DEBUGINFOD_CACHE_PATH/$2/debuginfo",
        place.path("debug").display()
    );
    client(&place, &fetch);
    assert_eq!(report(&place, ""), (false, false));
    client(&place, "echo no; exit 1");
    assert_eq!(report(&place, URLS), (false, true));
    client(&place, "exec sleep 1000");
    let begin = Instant::now();
    assert_eq!(report(&place, URLS), (false, true));
    assert!(begin.elapsed() < Duration::from_secs(300));
    client(&place, &fetch);
    assert_eq!(report(&place, URLS), (true, true));
    // From here on it is in the cache.
    assert_eq!(report(&place, ""), (true, false));
}
