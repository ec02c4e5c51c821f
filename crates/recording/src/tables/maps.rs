table! {
    Map in maps: "A mapping of the target.",
    latest: |row| Some(row.time);

    pid: Pid = "The process.",
    time: Time = "When it was first seen, CLOCK_MONOTONIC ns.",
    start: Address = "Its first byte.",
    end as stop (end before 3): Address = "One past its last byte.",
    offset as byte_offset (offset before 3): u64 = "Offset of `start` in the file, bytes.",
    executable: bool = "Whether it is executable.",
    writable: bool = "Whether it is writable.",
    kind: MapKind = "What it is.",
    path: String = "The file, or the kernel's name in brackets, or empty.",
    build_id: String = "GNU build id in lower-case hex; empty if the file has none.",
    device: Option<u32> = "Device of the file behind it, major number times 2^20 plus minor; null unless the mapping is shared: processes that map the same file have its bytes in common.",
    inode: Option<u64> = "Inode of that file; null unless the mapping is shared.",
}
