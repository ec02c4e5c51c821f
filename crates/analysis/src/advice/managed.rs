//! What to change in languages whose runtime says where values lie.

use super::proposal::{Change, Language};

/// How different bytes of one line come to lines of their own, where the runtime places the values; `None` in languages in
/// which the program does, and where that is not known.
pub(super) fn separate(language: Language, of_name: &str, bytes: u32) -> Option<Change> {
    let pad = bytes * 2;
    let begin = format!("Different threads use different bytes of one line{of_name}");
    let (how, source) = match language {
        Language::Java => (
            format!(
                "fields of one object, elements of one array, or small objects that were made one after the other. Give a field that one thread writes lines of its own with `@Contended` (the virtual machine heeds it outside the JDK with `-XX:-RestrictContended` only), or with fields of padding in a superclass and a subclass, since it orders the fields of one class as it likes. Let elements of different threads lie {pad} bytes apart ({} of a `long[]`); what is counted, a `LongAdder` counts. Where no such data lies side by side, it is the card table of the garbage collector (`-XX:+UseCondCardMark`)",
                pad / 8
            ),
            "@jdk.internal.vm.annotation.Contended // javac --add-exports java.base/jdk.internal.vm.annotation=ALL-UNNAMED"
                .to_owned(),
        ),
        Language::JavaScript => (
            format!(
                "elements of a `SharedArrayBuffer`, most likely, since workers share nothing else. Let each worker's elements lie {pad} bytes or more from those of the others, or let it count in a typed array of its own and add it up, or post it, now and then"
            ),
            format!(
                "const own = new Int32Array(shared, {pad} * worker, {}); // shared: {pad} bytes for each worker",
                pad / 4
            ),
        ),
        Language::Python => (
            format!(
                "objects that were made one after the other, whose reference counts the interpreter writes, or elements of one buffer. Let each thread make the objects that it works on, and let its part of a buffer begin at a multiple of {bytes} bytes ({pad} where the CPU prefetches lines in pairs)"
            ),
            String::new(),
        ),
        _ => return None,
    };
    Some(Change {
        text: format!("{begin}: {how}."),
        source,
    })
}

/// What a language has for that, behind "count in a variable of the thread and add it up now and then".
pub(super) fn counting(language: Language) -> &'static str {
    match language {
        Language::Java => ", as `LongAdder` does",
        Language::Go => ", or in shards, each with a `cpu.CacheLinePad` behind it",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_align_what_a_runtime_places() {
        for (language, said) in [
            (Language::Java, "`@Contended`"),
            (Language::JavaScript, "`SharedArrayBuffer`"),
            (Language::Python, "reference counts"),
        ] {
            let change = separate(language, " of the heap", 64).unwrap();
            let all = change.text + &change.source;
            assert!(
                all.contains(said) && all.contains("line of the heap: "),
                "{all}"
            );
            for other in ["alignas", "malloc", "struct"] {
                assert!(!all.contains(other), "{all}");
            }
        }
        assert_eq!(separate(Language::C, "", 64), None);
        assert_eq!(separate(Language::Other, "", 64), None);
    }

    #[test]
    fn elements_for_workers_lie_two_lines_apart() {
        let source = separate(Language::JavaScript, "", 64).unwrap().source;
        assert_eq!(
            source,
            "const own = new Int32Array(shared, 128 * worker, 32); // shared: 128 bytes for each worker"
        );
    }
}
