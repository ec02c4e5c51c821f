//! Decoding on hand-assembled bytes.

use super::*;

const BASE: u64 = 0x40_1000;

fn code(bytes: &[u8]) -> Code64 {
    Code64::new(BASE, bytes.to_vec())
}

/// Filler long enough to fall into step on: `mov rax, rbx` many times, then the bytes.
fn with_filler(bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut all = [0x48, 0x89, 0xd8].repeat(40);
    let start = BASE + all.len() as u64;
    all.extend_from_slice(bytes);
    (all, start)
}

fn first(waiting: Waiting) -> Instruction {
    match waiting {
        Waiting::Instructions(found) => {
            let waiting = found.waiting(&mut AccessReader::new());
            waiting.first().unwrap().instruction
        }
        Waiting::Unknown(reason) => panic!("unknown: {reason:?}"),
    }
}

#[test]
fn the_instruction_before_the_interrupted_one_waited() {
    // lock add qword [rdi+8], 1 ; inc rcx ; nop
    let (bytes, start) = with_filler(&[0xf0, 0x48, 0x83, 0x47, 0x08, 0x01, 0x48, 0xff, 0xc1, 0x90]);
    let found = first(waiting(&code(&bytes), start + 6, SkidRule::Next));
    assert_eq!(found.ip(), start);
    let registers = Registers::from_pairs(&[(5, 0x7000)]);
    let access = AccessReader::new()
        .access(&found, &registers, RegistersFrom::After(&[]))
        .unwrap();
    assert_eq!((access.address, access.size), (0x7008, 8));
    assert_eq!(access.operation, Operation::Update);
    assert!(access.locked);
}

#[test]
fn a_load_that_overwrites_its_own_address_is_only_readable_before_it_runs() {
    // mov rax, [rax] ; nop
    let (bytes, start) = with_filler(&[0x48, 0x8b, 0x00, 0x90]);
    let found = first(waiting(&code(&bytes), start + 3, SkidRule::Next));
    let registers = Registers::from_pairs(&[(0, 0x5000)]);
    let mut reader = AccessReader::new();
    assert_eq!(
        reader.access(&found, &registers, RegistersFrom::After(&[])),
        Err(UnknownReason::AddressOverwritten)
    );
    assert_eq!(
        reader
            .access(&found, &registers, RegistersFrom::Before)
            .unwrap()
            .address,
        0x5000
    );
}

#[test]
fn a_static_variable_is_found_from_the_instruction_pointer() {
    // mov [rip+0x100], rax ; nop
    let (bytes, start) = with_filler(&[0x48, 0x89, 0x05, 0x00, 0x01, 0x00, 0x00, 0x90]);
    let found = first(waiting(&code(&bytes), start + 7, SkidRule::Next));
    let access = AccessReader::new()
        .access(
            &found,
            &Registers::from_pairs(&[]),
            RegistersFrom::After(&[]),
        )
        .unwrap();
    assert_eq!(access.address, start + 7 + 0x100);
    assert_eq!(access.operation, Operation::Store);
}

#[test]
fn thread_local_accesses_have_an_address_where_the_base_is_known() {
    // mov rax, fs:[rbx-8] ; nop
    let (bytes, start) = with_filler(&[0x64, 0x48, 0x8b, 0x43, 0xf8, 0x90]);
    let found = first(waiting(&code(&bytes), start + 5, SkidRule::Next));
    let registers = Registers::from_pairs(&[(1, 0x40)]);
    let read =
        |registers| AccessReader::new().access(&found, &registers, RegistersFrom::After(&[]));
    assert_eq!(read(registers), Err(UnknownReason::AddressNotInRegisters));
    let access = read(registers.with_thread_base(Some(0x7000))).unwrap();
    assert_eq!((access.address, access.size), (0x7038, 8));
}

#[test]
fn at_the_head_of_a_loop_the_end_of_the_loop_waited() {
    // head: inc rcx ; cmp qword [rdi], 0 ; jne head ; nop
    let (bytes, start) = with_filler(&[0x48, 0xff, 0xc1, 0x48, 0x83, 0x3f, 0x00, 0x75, 0xf7, 0x90]);
    let found = first(waiting(&code(&bytes), start, SkidRule::Next));
    assert_eq!(
        found.ip(),
        start + 3,
        "the compare that runs as one with the branch"
    );
    assert!(AccessReader::new().accesses_memory(&found));
}

#[test]
fn where_a_skipped_access_and_its_branch_join_the_access_waited() {
    // jb over ; lock inc qword [r9+rdi*8] ; over: inc rcx ; nop
    let (bytes, start) = with_filler(&[
        0x72, 0x05, 0xf0, 0x49, 0xff, 0x04, 0xf9, 0x48, 0xff, 0xc1, 0x90,
    ]);
    let found = first(waiting(&code(&bytes), start + 7, SkidRule::Next));
    assert_eq!(found.ip(), start + 2);
}

#[test]
fn an_access_inside_a_rotated_loop_is_not_taken_for_its_preheader() {
    // access: lock inc qword [rdi] ; join: dec rcx ; jz +4 ; js join ; jmp access ; nop
    let (bytes, start) = with_filler(&[
        0xf0, 0x48, 0xff, 0x07, 0x48, 0xff, 0xc9, 0x74, 0x04, 0x78, 0xf9, 0xeb, 0xf3, 0x90,
    ]);
    let found = first(waiting(&code(&bytes), start + 4, SkidRule::Next));
    assert_eq!(found.ip(), start);
}

#[test]
fn behind_a_return_nothing_is_known() {
    // ret ; nop
    let (bytes, start) = with_filler(&[0xc3, 0x90]);
    assert!(matches!(
        waiting(&code(&bytes), start + 1, SkidRule::Next),
        Waiting::Unknown(UnknownReason::BlockStart)
    ));
}

#[test]
fn a_repeated_move_reports_itself() {
    // rep movsb ; nop
    let (bytes, start) = with_filler(&[0xf3, 0xa4, 0x90]);
    let found = first(waiting(&code(&bytes), start, SkidRule::Next));
    assert_eq!(found.ip(), start);
    let registers = Registers::from_pairs(&[(4, 0x1000), (5, 0x2000)]);
    let access = AccessReader::new()
        .access(&found, &registers, RegistersFrom::After(&[]))
        .unwrap();
    assert_eq!(
        (access.address, access.operation),
        (0x2000, Operation::Store)
    );
}

#[test]
fn arithmetic_waits_for_no_memory() {
    // imul rax, rbx ; nop
    let (bytes, start) = with_filler(&[0x48, 0x0f, 0xaf, 0xc3, 0x90]);
    let found = first(waiting(&code(&bytes), start + 4, SkidRule::Next));
    assert!(!AccessReader::new().accesses_memory(&found));
    // lea rax, [rbx+8] computes an address and reads nothing; push touches only the stack.
    let (bytes, start) = with_filler(&[0x48, 0x8d, 0x43, 0x08, 0x50, 0x90]);
    let lea = first(waiting(&code(&bytes), start + 4, SkidRule::Next));
    assert!(!AccessReader::new().accesses_memory(&lea));
    let push = first(waiting(&code(&bytes), start + 5, SkidRule::Next));
    assert!(!AccessReader::new().accesses_memory(&push));
}

#[test]
fn no_bytes_and_garbage_are_unknown_not_a_panic() {
    assert!(matches!(
        waiting(&code(&[]), BASE, SkidRule::Next),
        Waiting::Unknown(UnknownReason::Undecodable)
    ));
    let garbage: Vec<u8> = (0..255u8).map(|i| i.wrapping_mul(37)).collect();
    for offset in 0..garbage.len() as u64 {
        let _ = waiting(&code(&garbage), BASE + offset, SkidRule::Next);
        let _ = waiting(&code(&garbage), BASE + offset, SkidRule::Same);
    }
}

#[test]
fn where_blocks_join_the_thread_tells_which_of_them_it_runs() {
    // test edi, edi; je +6; mov [rbx], eax; jmp +5; (4) mov [rcx], eax; xor edx, edx; (join) nop
    let (bytes, start) = with_filler(&[
        0x85, 0xff, 0x74, 0x04, 0x89, 0x03, 0xeb, 0x04, 0x31, 0xd2, 0x89, 0x01, 0x90, 0x90,
    ]);
    let [first, second, join] = [4, 10, 12].map(|at| start + at);
    let Waiting::Instructions(found) = waiting(&code(&bytes), join, SkidRule::Next) else {
        panic!("nothing before it")
    };
    let candidates = found.waiting(&mut AccessReader::new());
    let ips: Vec<u64> = candidates.iter().map(|it| it.instruction.ip()).collect();
    assert_eq!(ips, [second, first]);
    let known = |seen: &[u64], unseen: &[u64]| {
        let which = which(
            &candidates,
            |ip| seen.contains(&ip),
            |ip| unseen.contains(&ip),
        );
        match which {
            Which::Known(it) => Some(it.instruction.ip()),
            Which::Asked(it) => Some(it.instruction.ip() + 1000),
            Which::Unknown => None,
        }
    };
    assert_eq!(known(&[first], &[second]), Some(first));
    // The xor in front of the second.
    assert_eq!(known(&[second - 2], &[first]), Some(second));
    // It may run both.
    assert_eq!(known(&[first], &[]), Some(second + 1000));
    assert_eq!(known(&[first, second], &[]), None);
    assert_eq!(known(&[], &[]), Some(second + 1000));
    assert_eq!(known(&[], &[second]), Some(first));
    assert_eq!(known(&[], &[second, first]), None);
}

#[test]
fn a_bit_is_touched_in_the_word_that_its_number_picks() {
    // lock btc qword [rdi], rax ; nop
    let (bytes, start) = with_filler(&[0xf0, 0x48, 0x0f, 0xbb, 0x07, 0x90]);
    let found = first(waiting(&code(&bytes), start + 5, SkidRule::Next));
    for (bit, word) in [(3, 0x7000), (69, 0x7008), (-1_i64 as u64, 0x6ff8)] {
        let registers = Registers::from_pairs(&[(0, bit), (5, 0x7000)]);
        let access = AccessReader::new()
            .access(&found, &registers, RegistersFrom::After(&[]))
            .unwrap();
        assert_eq!((access.address, access.size), (word, 8), "{bit}");
    }
    assert_eq!(offset_of_bit(0xffff_ffff, 4), -4_i64 as u64);
}

#[test]
fn which_bytes_a_mask_leaves_is_not_known() {
    // vpmaskmovq [rdi], ymm0, ymm1 ; nop
    let (bytes, start) = with_filler(&[0xc4, 0xe2, 0xfd, 0x8e, 0x0f, 0x90]);
    let found = first(waiting(&code(&bytes), start + 5, SkidRule::Next));
    let registers = Registers::from_pairs(&[(5, 0x7000)]);
    assert_eq!(
        AccessReader::new().access(&found, &registers, RegistersFrom::After(&[])),
        Err(UnknownReason::AddressNotInRegisters)
    );
}
