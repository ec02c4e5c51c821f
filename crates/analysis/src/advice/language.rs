//! In which language a place is written: by the sources of the program's own code there, by the type that its debug info names, or, of
//! code that a runtime made or runs, by the runtime.

use linewise_recording::{Frame, Map};

use super::proposal::language_of_file;
use crate::model::SourcePlace;
use crate::own_code::{is_library, is_own};
use crate::runtime::Runtimes;

/// The languages of code.
#[derive(Debug, Default)]
pub(super) struct Languages {
    runtimes: Runtimes,
}

impl Languages {
    /// Of processes with these mappings.
    pub(super) fn new(maps: &[Map]) -> Self {
        Self {
            runtimes: Runtimes::of(maps),
        }
    }

    /// The language of an instruction with these frames, innermost first; empty if unknown. `own` is the program's own place
    /// that leads there, `of_type` the language of the type that the instruction touches.
    pub(super) fn of<'t>(
        &self,
        frames: &[&Frame],
        own: Option<&SourcePlace>,
        of_type: &'t str,
    ) -> &'t str {
        let mut of_runtime = frames
            .iter()
            .filter_map(|frame| self.runtimes.behind(frame));
        if let Some(runtime) = of_runtime.next() {
            return runtime.language;
        }
        let is_said = |word: &&str| !word.is_empty();
        // What a library of the system was written in says nothing of who calls it.
        let inlined = || {
            frames
                .iter()
                .filter(|frame| !is_library(&frame.module) || is_own(frame))
        };
        let of_frames = (inlined().map(|frame| language_of_file(&frame.file))).find(is_said);
        let of_own = own.map(|own| language_of_file(&own.file)).filter(is_said);
        of_own.or(of_frames).unwrap_or(match inlined().next() {
            Some(_) => of_type,
            None => "",
        })
    }
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Address, Pid};

    use super::*;

    fn frame(file: &str, module: &str) -> Frame {
        Frame {
            pid: Pid(1),
            address: Address(1),
            depth: 0,
            function: "work".to_owned(),
            file: file.to_owned(),
            line: 1,
            module: module.to_owned(),
            reason: String::new(),
        }
    }

    fn of(frames: &[(&str, &str)], own: &str, of_type: &str) -> String {
        let frames: Vec<Frame> = (frames.iter())
            .map(|(file, module)| frame(file, module))
            .collect();
        let frames: Vec<&Frame> = frames.iter().collect();
        let own = SourcePlace {
            file: own.to_owned(),
            ..SourcePlace::default()
        };
        Languages::default()
            .of(&frames, Some(&own), of_type)
            .to_owned()
    }

    #[test]
    fn the_programs_own_code_says_the_language_and_a_library_does_not() {
        let app = "/srv/app";
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(of(&[("work.c", app)], "work.c", ""), "c");
        assert_eq!(of(&[("./nptl/lock.c", libc)], "src/main.rs", "c"), "rust");
        assert_eq!(of(&[("./nptl/lock.c", libc)], "", "c"), "");
        // A header is its type's, or that of the code which it was inlined into.
        assert_eq!(of(&[("queue.h", app)], "queue.h", "c"), "c");
        assert_eq!(
            of(&[("queue.h", app), ("main.cpp", app)], "queue.h", ""),
            "c++"
        );
        assert_eq!(of(&[("queue.h", app)], "", ""), "");
    }

    #[test]
    fn code_of_a_runtime_is_its_programs() {
        let jvm = "/opt/jdk/lib/server/libjvm.so";
        assert_eq!(of(&[("g1CollectedHeap.cpp", jvm)], "", "c++"), "java");
        assert_eq!(of(&[("", "/usr/bin/node")], "", ""), "javascript");
        // The program's own module in C, though a runtime is there.
        assert_eq!(of(&[("own.c", "/srv/own.so")], "own.c", ""), "c");
    }
}
