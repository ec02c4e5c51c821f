//! The exact source: a plugin for QEMU user mode that hands every memory access to a collector.
