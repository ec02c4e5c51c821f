//! Decoding on hand-assembled bytes.

use super::*;

const BASE: u64 = 0x40_1000;
const AFTER: RegistersFrom<'_> = RegistersFrom::After {
    earlier: &[],
    later: &[],
};

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
        .access(&found, &registers, AFTER)
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
        reader.access(&found, &registers, AFTER),
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
        .access(&found, &Registers::from_pairs(&[]), AFTER)
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
    let read = |registers| AccessReader::new().access(&found, &registers, AFTER);
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
fn what_fills_the_space_before_a_function_did_not_run() {
    // (mov rax, rbx | ret) ; what fills ; mov eax, [rdi]
    let padded = |before: &[u8], fills: &[u8]| {
        let (bytes, start) = with_filler(&[before, fills, &[0x8b, 0x07]].concat());
        let function = start + (before.len() + fills.len()) as u64;
        waiting(&code(&bytes), function, SkidRule::Next)
    };
    let is_block_start =
        |found: Waiting| matches!(found, Waiting::Unknown(UnknownReason::BlockStart));
    // nop word cs:[rax+rax] ; nop dword [rax]
    let nops = [
        0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x00,
    ];
    assert!(is_block_start(padded(&[0xc3], &nops)));
    // Into the head of a loop it runs from above.
    assert_eq!(first(padded(&[], &nops)).len(), 3);
    assert!(is_block_start(padded(&[0xc3], &[0, 0])));
}

#[test]
fn a_repeated_move_reports_itself() {
    // rep movsb ; nop
    let (bytes, start) = with_filler(&[0xf3, 0xa4, 0x90]);
    let found = first(waiting(&code(&bytes), start, SkidRule::Next));
    assert_eq!(found.ip(), start);
    let stores = |left, flags| {
        let registers = [(4, 0x1000), (5, 0x2000), (2, left), (9, flags)];
        let registers = Registers::from_pairs(&registers);
        let access = AccessReader::new().access(&found, &registers, AFTER);
        access.map(|it| (it.address, it.operation)).unwrap()
    };
    assert_eq!(stores(8, 0), (0x2000, Operation::Store));
    // Once it is done the register stands one behind the last byte, or before the first where it goes down.
    assert_eq!(stores(0, 0).0, 0x1fff);
    assert_eq!(stores(0, 1 << 10).0, 0x2001);
}

#[test]
fn a_store_past_the_caches_waits_for_no_line() {
    // movnti [rdi], rax ; nop
    let (bytes, start) = with_filler(&[0x48, 0x0f, 0xc3, 0x07, 0x90]);
    let found = first(waiting(&code(&bytes), start + 4, SkidRule::Next));
    assert!(!AccessReader::new().accesses_memory(&found));
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
            .access(&found, &registers, AFTER)
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
        AccessReader::new().access(&found, &registers, AFTER),
        Err(UnknownReason::AddressNotInRegisters)
    );
}

/// The access that a sample at the end of these bytes, or at their last instruction, stands for.
fn at_fence(
    bytes: &[u8],
    (back, rule): (u64, SkidRule),
    registers: &[(u32, u64)],
) -> Result<(u64, Access), Option<UnknownReason>> {
    // ret; then the block, so that nothing before it counts; nop
    let (all, start) = with_filler(&[&[0xc3], bytes, &[0x90]].concat());
    let ip = start + 1 + bytes.len() as u64 - back;
    let Waiting::Instructions(found) = waiting(&code(&all), ip, rule) else {
        panic!("nothing waited")
    };
    let mut reader = AccessReader::new();
    let candidates = found.waiting(&mut reader);
    let found = candidates.first().unwrap();
    if found.is_blind {
        return Err(None);
    }
    let registers = Registers::from_pairs(registers);
    let from = found.registers_at(ip);
    let access = reader.access(&found.instruction, &registers, from);
    access.map(|it| (it.ip - start - 1, it)).map_err(Some)
}

#[test]
fn a_fence_waits_for_the_store_before_it() {
    // Java: mov [r10+0x10], rax; lock add dword [rsp-0x40], 0
    let java = [0x49, 0x89, 0x42, 0x10, 0xf0, 0x83, 0x44, 0x24, 0xc0, 0x00];
    // gcc: mov dword [rdi+4], esi; mfence, and: mov [rip+0x100], rax; lock or qword [rsp], 0
    let gcc = [0x89, 0x77, 0x04, 0x0f, 0xae, 0xf0];
    let global = [
        0x48, 0x89, 0x05, 0x00, 0x01, 0x00, 0x00, 0xf0, 0x48, 0x83, 0x0c, 0x24, 0x00,
    ];
    let registers = [(18, 0x7000), (5, 0x5000), (7, 0x9000)];
    for rule in [SkidRule::Next, SkidRule::Same] {
        let at = |fence| match rule {
            SkidRule::Next => (0, rule),
            SkidRule::Same => (fence, rule),
        };
        let (ip, access) = at_fence(&java, at(6), &registers).unwrap();
        assert_eq!((ip, access.address, access.size), (0, 0x7010, 8));
        assert_eq!(access.operation, Operation::Store);
        assert!(!access.locked);
        let (_, access) = at_fence(&gcc, at(3), &registers).unwrap();
        assert_eq!((access.address, access.size), (0x5004, 4));
        let (_, access) = at_fence(&global, at(6), &registers).unwrap();
        let begin = BASE + 3 * 40 + 1;
        assert_eq!((access.address, access.size), (begin + 7 + 0x100, 8));
    }
}

#[test]
fn the_registers_of_a_store_are_looked_for_where_they_were_overwritten_before_its_fence() {
    // mov [rdi], rax; mov rdi, [rdi+8]; mfence
    let gone = [0x48, 0x89, 0x07, 0x48, 0x8b, 0x7f, 0x08, 0x0f, 0xae, 0xf0];
    let registers = [(5, 0x5000), (3, 0x6000)];
    let overwritten = Err(Some(UnknownReason::AddressOverwritten));
    let next = (0, SkidRule::Next);
    assert_eq!(at_fence(&gone, next, &registers), overwritten);
    assert_eq!(
        at_fence(&gone, (3, SkidRule::Same), &registers),
        overwritten
    );
    // mov rdi, rdx; mov [rdi], rax; mov rdi, [rsp+8]; mfence: the code tells what it held.
    let told = [
        0x48, 0x89, 0xd7, 0x48, 0x89, 0x07, 0x48, 0x8b, 0x7c, 0x24, 0x08, 0x0f, 0xae, 0xf0,
    ];
    let (ip, access) = at_fence(&told, next, &registers).unwrap();
    assert_eq!((ip, access.address), (3, 0x6000));
}

#[test]
fn what_a_fence_without_a_store_in_its_block_waits_for_is_not_known() {
    // mov rcx, [rdi]; lock add dword [rsp], 0
    let alone = [0x48, 0x8b, 0x0f, 0xf0, 0x83, 0x04, 0x24, 0x00];
    let registers = [(5, 0x5000), (7, 0x9000)];
    for from in [(0, SkidRule::Next), (5, SkidRule::Same)] {
        assert_eq!(at_fence(&alone, from, &registers), Err(None));
    }
    // mov [rsi], rax; lock inc qword [rdi]; lock add dword [rsp], 0: there is nothing left to wait for.
    let again = [
        0x48, 0x89, 0x06, 0xf0, 0x48, 0xff, 0x07, 0xf0, 0x83, 0x04, 0x24, 0x00,
    ];
    let (_, access) = at_fence(&again, (0, SkidRule::Next), &registers).unwrap();
    assert_eq!(access.address, 0x9000);
}

#[test]
fn what_a_watchpoint_saw_before_a_fence_is_the_fence() {
    // mov [rdi], rax; lock add dword [rsp], 0; nop
    let (bytes, start) = with_filler(&[0x48, 0x89, 0x07, 0xf0, 0x83, 0x04, 0x24, 0x00, 0x90]);
    let found = first(executed_before(&code(&bytes), start + 8));
    assert_eq!(found.ip(), start + 3);
}
