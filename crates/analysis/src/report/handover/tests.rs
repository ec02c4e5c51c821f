use linewise_recording::Source;

use super::*;
use crate::quantity::Interval;
use crate::views::groups::{Distance, GroupPlace, PlacementAdvice, Shape};

fn thread(tid: u32, name: &str, group: Option<u32>) -> GroupedThread {
    GroupedThread {
        tid,
        pid: 10,
        name: name.to_owned(),
        load: 1.0,
        group,
    }
}

fn group(id: u32, threads: &[u32], cpus: &str) -> ThreadGroup {
    ThreadGroup {
        id,
        threads: threads.to_vec(),
        load: 2.0,
        transfers: 1e6,
        interval: Interval::exactly(1e6),
        false_share: 0.0,
        in_turns: 0.0,
        outside: 0.0,
        lines: 1,
        hot_bytes: 64,
        cost: 0.1,
        cost_interval: Interval::exactly(0.1),
        elsewhere: Vec::new(),
        place: Some(GroupPlace {
            cpus: cpus.to_owned(),
            nodes: "0".to_owned(),
            distance: Distance::Llc,
            llc: Some(id - 1),
            is_there: false,
        }),
        why: Vec::new(),
    }
}

/// Two pairs, one thread of which has a name that a shell would obey.
fn groups(launched: bool) -> ThreadGroups {
    ThreadGroups {
        schema: 1,
        command: vec![
            "/opt/it's mine".to_owned(),
            "--n=4".to_owned(),
            "$(id)".to_owned(),
        ],
        source: Source::Timer,
        launched,
        duration_ns: 1_000_000_000,
        line_bytes: 64,
        threads: vec![
            thread(11, "push'; id; '", Some(1)),
            thread(13, "pop\nid", Some(1)),
            thread(12, "same", Some(2)),
            thread(14, "other", Some(2)),
            thread(15, "same", None),
        ],
        pairs: Vec::new(),
        groups: vec![group(1, &[11, 13], "0-7"), group(2, &[12, 14], "8-15")],
        shape: Shape::default(),
        latencies: Vec::new(),
        advice: PlacementAdvice {
            verdict: PlacementVerdict::Move,
            words: String::new(),
        },
        notes: Vec::new(),
    }
}

fn handed(launched: bool, to: Handover) -> Handed {
    hand_over(&groups(launched), to).unwrap()
}

#[test]
fn threads_that_live_are_placed_by_id_and_their_names_are_comments_on_one_line() {
    let text = handed(false, Handover::Taskset).text;
    assert!(
        text.contains("\ntaskset -cp 0-7 11  # push'; id; '\n"),
        "{text}"
    );
    assert!(
        text.contains("\ntaskset -cp 0-7 13  # pop\\nid\n"),
        "{text}"
    );
    assert!(text.contains("\ntaskset -cp 8-15 14  # other\n"), "{text}");
    assert_eq!(handed(false, Handover::Taskset).notes, Vec::<String>::new());
}

#[test]
fn threads_of_a_later_run_are_found_by_names_that_tell_their_group() {
    let it = handed(true, Handover::Cpuset);
    assert!(it.text.contains(r#" = 'it'\''s mine' ] &&"#), "{}", it.text);
    assert!(
        it.text
            .contains(r#"by_name "$cgroup"/group-1 'push'\''; id; '\'''"#),
        "{}",
        it.text
    );
    assert!(
        it.text.contains("by_name \"$cgroup\"/group-2 other\n"),
        "{}",
        it.text
    );
    assert!(
        !it.text.contains("by_name \"$cgroup\"/group-2 same"),
        "{}",
        it.text
    );
    assert!(
        it.notes[0].starts_with("2 threads cannot be found"),
        "{:?}",
        it.notes
    );
}

#[test]
fn scripts_are_such_for_a_shell() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    for to in [Handover::Taskset, Handover::Cpuset, Handover::Numactl] {
        for launched in [true, false] {
            let text = handed(launched, to).text;
            let shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn();
            let mut shell = shell.unwrap();
            shell
                .stdin
                .take()
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            assert!(shell.wait().unwrap().success(), "{text}");
        }
    }
}

#[test]
fn whole_programs_are_placed_on_the_cpus_of_all_groups() {
    let numactl = handed(true, Handover::Numactl);
    let line = numactl.text.lines().last().unwrap();
    assert_eq!(
        line,
        r"numactl --physcpubind=0-15 --membind=0 '/opt/it'\''s mine' --n=4 '$(id)'"
    );
    assert_eq!(numactl.notes.len(), 1);
    let unit = handed(true, Handover::Systemd).text;
    assert!(
        unit.ends_with("[Service]\nAllowedCPUs=0-15\nAllowedMemoryNodes=0\n"),
        "{unit}"
    );
}

#[test]
fn layers_match_by_name_where_that_tells_and_end_with_one_for_all() {
    let text = handed(false, Handover::ScxLayered).text;
    let layers: serde_json::Value = serde_json::from_str(&text).unwrap();
    let second = &layers[1];
    assert_eq!(second["matches"][0][0]["PIDEquals"], 12);
    // Of a command that was launched the process is over.
    let launched = handed(true, Handover::ScxLayered);
    assert!(!launched.text.contains("PIDEquals"), "{}", launched.text);
    assert!(
        launched.notes.iter().any(|note| note.contains("has ended")),
        "{:?}",
        launched.notes
    );
    assert_eq!(second["matches"][1][0]["CommPrefix"], "other");
    assert_eq!(second["kind"]["Confined"]["llcs"][0], 1);
    assert_eq!(layers[2]["matches"], serde_json::json!([[]]));
    assert!(text.chars().all(|c| c == '\n' || is_safe(c)));
}

#[test]
fn schedqos_gets_classes_and_nothing_is_handed_over_where_nothing_is_moved() {
    let text = handed(true, Handover::Schedqos).text;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value["it's mine"]["thread_qos"]["other"],
        "QOS_USER_INITIATED"
    );
    let mut stay = groups(true);
    stay.advice.verdict = PlacementVerdict::OneLlc;
    assert_eq!(hand_over(&stay, Handover::Taskset), None);
}
