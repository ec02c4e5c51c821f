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
        gain: 0.05,
        gain_interval: Interval::exactly(0.05),
        verdict: PlacementVerdict::Move,
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
    assert!(
        it.text.contains(r#" = 'it'\''s mine' ] || continue"#),
        "{}",
        it.text
    );
    assert!(
        it.text.contains(
            r#"'push'\''; id; '\''') echo "${task##*/}" > "$cgroup"/group-1/cgroup.threads ;;"#
        ),
        "{}",
        it.text
    );
    assert!(
        it.text
            .contains(r#"    other) echo "${task##*/}" > "$cgroup"/group-2/cgroup.threads ;;"#),
        "{}",
        it.text
    );
    assert!(
        !it.text.contains("same) ") && !it.text.contains("| same"),
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
    assert!(hand_over(&stay, Handover::Taskset).is_err());
}

#[test]
fn a_group_that_gains_too_little_is_in_no_line_and_one_that_is_there_is_held() {
    let mut groups = groups(false);
    groups.groups[1].verdict = PlacementVerdict::TooCheap;
    let text = hand_over(&groups, Handover::Taskset).unwrap().text;
    assert!(text.contains(" 0-7 ") && !text.contains(" 8-15 "), "{text}");
    groups.groups[1].verdict = PlacementVerdict::AlreadyThere;
    let text = hand_over(&groups, Handover::Taskset).unwrap().text;
    assert!(text.contains(" 8-15 "), "{text}");
}

#[test]
fn whole_programs_are_not_placed_on_all_of_the_machine() {
    let mut groups = groups(true);
    groups.shape.cpus = 16;
    for to in [Handover::Numactl, Handover::Systemd] {
        let reason = hand_over(&groups, to).unwrap_err();
        assert!(reason.contains("would change nothing"), "{reason}");
    }
    assert!(hand_over(&groups, Handover::Taskset).is_ok());
}

/// Whether a script came to its end, and what it said to its standard error.
fn ran(script: &str, argument: &std::path::Path) -> (bool, String) {
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", script, "script"]).arg(argument).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), errors)
}

#[test]
fn the_script_of_cpusets_makes_one_for_each_group_and_puts_its_threads_there() {
    let folder = tempfile::tempdir().unwrap();
    let cgroup = folder.path();
    let read = |file: &str| std::fs::read_to_string(cgroup.join(file)).unwrap();
    let script = handed(false, Handover::Cpuset).text;
    std::fs::write(cgroup.join("cgroup.controllers"), "cpu io\n").unwrap();
    let (is_done, errors) = ran(&script, cgroup);
    assert!(
        !is_done && errors.contains("no cpuset controller"),
        "{errors}"
    );
    std::fs::write(cgroup.join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
    assert_eq!(ran(&script, cgroup), (true, String::new()));
    assert_eq!(read("cgroup.subtree_control"), "+cpuset\n");
    for (group, cpus, last) in [(1, "0-7", 13), (2, "8-15", 14)] {
        let file = |name: &str| read(&format!("group-{group}/{name}"));
        assert_eq!(file("cgroup.type"), "threaded\n");
        assert_eq!(file("cpuset.cpus"), format!("{cpus}\n"));
        assert_eq!(file("cpuset.mems"), "0\n");
        // In a folder of plain files the last one written is left.
        assert_eq!(file("cgroup.threads"), format!("{last}\n"));
    }
}

#[test]
fn threads_are_found_by_name_in_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lw's other");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let running = std::process::Command::new(&program).arg("60").spawn();
    let mut running = running.unwrap();
    let mut groups = groups(true);
    groups.command = vec![program.display().to_string()];
    groups.threads[3].name = "lw's other".to_owned();
    let script = hand_over(&groups, Handover::Cpuset).unwrap().text;
    std::fs::write(folder.path().join("cgroup.controllers"), "cpuset\n").unwrap();
    let done = ran(&script, folder.path());
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(done, (true, String::new()));
    let told = |group: &str| std::fs::read_to_string(folder.path().join(group));
    let id = format!("{}\n", running.id());
    assert_eq!(told("group-2/cgroup.threads").unwrap(), id);
    assert!(told("group-1/cgroup.threads").is_err());
}
