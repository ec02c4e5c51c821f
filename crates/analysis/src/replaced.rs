//! Programs and libraries that are other files by now than were recorded.

use std::collections::BTreeSet;

use linewise_recording::Tables;

use crate::resolve::replaced_file;

/// Files that are named; of more their number is told.
const MOST_NAMED: usize = 3;

/// What the reader is told of files that were rebuilt or replaced before their names had been looked up. The names of
/// a recording that is `complete` were looked up when it ended.
pub(crate) fn note(complete: bool, tables: &Tables) -> Option<String> {
    let frames = tables.frames.iter();
    let files: BTreeSet<&str> = frames.filter_map(|it| replaced_file(&it.reason)).collect();
    let first = files.first()?;
    let mut named: Vec<String> = files
        .iter()
        .take(MOST_NAMED)
        .map(ToString::to_string)
        .collect();
    if files.len() > MOST_NAMED {
        named.push(format!("{} more", files.len() - MOST_NAMED));
    }
    let (are, theirs, they) = match files.len() {
        1 => ("is not the file that was", "its", "it was"),
        _ => ("are not the files that were", "their", "they were"),
    };
    let files = match named.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => return None,
    };
    let mut note = format!(
        "{files} {are} recorded: {they} rebuilt or replaced since, so {theirs} functions, lines and variables have no names here. Record again"
    );
    if !complete {
        note.push_str(", or report where the old file is");
        let mut maps = tables.maps.iter();
        if let Some(map) = maps.find(|map| map.path == *first && !map.build_id.is_empty()) {
            let id = &map.build_id;
            note.push_str(&format!(
                ": `debuginfod-find executable {id}` fetches {first} if it is a distribution's"
            ));
        }
    }
    note.push('.');
    Some(note)
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Address, Frame, Map, MapKind, Pid, Time};

    use super::*;
    use crate::resolve::reason_of_a_replaced_file;

    fn tables(paths: &[&str]) -> Tables {
        let reasons = paths.iter().map(|path| reason_of_a_replaced_file(path));
        let reasons = reasons.chain([String::new(), "no debug info in /bin/sh".to_owned()]);
        let frames = reasons.map(|reason| Frame {
            pid: Pid(1),
            address: Address(1),
            depth: 0,
            function: String::new(),
            file: String::new(),
            line: 0,
            module: String::new(),
            reason,
        });
        Tables {
            frames: frames.collect(),
            maps: vec![Map {
                pid: Pid(1),
                time: Time(1),
                start: Address(1),
                end: Address(2),
                offset: 0,
                executable: true,
                writable: false,
                kind: MapKind::File,
                path: "/a".to_owned(),
                build_id: "0ab1".to_owned(),
                device: None,
                inode: None,
            }],
            ..Tables::default()
        }
    }

    #[test]
    fn files_that_were_rebuilt_are_named_with_what_to_do() {
        assert_eq!(note(true, &tables(&[])), None);
        let one = "/a is not the file that was recorded: it was rebuilt or replaced since, so its functions, lines and variables have no names here. Record again.";
        assert_eq!(note(true, &tables(&["/a", "/a"])).as_deref(), Some(one));
        let some = note(true, &tables(&["/c", "/b"])).unwrap();
        assert!(some.starts_with("/b and /c are not the files that were recorded: they"));
        let many = note(true, &tables(&["/1", "/2", "/3", "/4", "/5"])).unwrap();
        assert!(many.starts_with("/1, /2, /3 and 2 more are"), "{many}");
    }

    #[test]
    fn where_the_report_looks_names_up_the_old_file_helps() {
        let told = note(false, &tables(&["/a"])).unwrap();
        let end = "Record again, or report where the old file is: `debuginfod-find executable 0ab1` fetches /a if it is a distribution's.";
        assert!(told.ends_with(end), "{told}");
        let told = note(false, &tables(&["/b"])).unwrap();
        assert!(told.ends_with("or report where the old file is."), "{told}");
    }
}
