//! What a thread lends others from its stack while it sleeps.

use linewise_recording::{Object, ObjectKind};

use crate::heap::record;
use crate::util::Place;

#[test]
fn what_is_lent_from_a_stack_is_named_by_the_frame_that_has_it() {
    for flags in [&["-O2"][..], &["-O2", "-fno-omit-frame-pointer"], &["-O0"]] {
        let place = Place::new();
        let Some(target) = place.compile("gcc", "crates/cli/tests/lent.c", "lent", flags) else {
            return;
        };
        let (output, recording) = record(&place, &[], &target, &[]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let printed = output.stdout.trim().trim_start_matches("0x");
        let truth = u64::from_str_radix(printed, 16).unwrap();
        let tables = recording.tables().unwrap();
        let of_stats = |it: &&Object| it.address.0 == truth && it.kind == ObjectKind::Stack;
        let object = tables.objects.iter().find(of_stats);
        let object = object
            .unwrap_or_else(|| panic!("{flags:?}: {:?} {:?}", tables.objects, tables.stack_frames));
        assert_eq!(object.name, "stats in serve's frame");
        assert_eq!(
            (object.type_name.as_str(), object.size),
            ("struct stats", 16)
        );
        assert!(
            object.declared_at.ends_with("lent.c:43"),
            "{}",
            object.declared_at
        );
        let fields = tables
            .fields
            .iter()
            .filter(|it| it.object == object.address);
        let fields: Vec<(&str, u64)> = fields.map(|it| (it.path.as_str(), it.offset)).collect();
        assert_eq!(fields, [("stats.hits", 0), ("stats.misses", 8)]);
    }
}
