//! Invented rows of a run from samples, for tests.

use linewise_recording::{
    Address, AddressOrigin, CpuId, Operation, Pid, Sample, SampleClass, StackId, Tid, Time,
    TypedAccess,
};

/// The process of these rows.
pub(crate) const PID: Pid = Pid(7);

/// A load of 8 bytes by the instruction `ip`, at which thread `tid` was sampled for 100 ns.
pub(crate) fn sample(tid: u32, ip: u64, address: u64) -> Sample {
    Sample {
        time: Time(1),
        pid: PID,
        tid: Tid(tid),
        cpu: CpuId(0),
        ip: Address(ip),
        sp: Address(0),
        stack: StackId(0),
        weight: 100,
        class: SampleClass::Access,
        access_ip: Address(ip),
        address: Address(address),
        size: 8,
        operation: Some(Operation::Load),
        locked: false,
        origin: Some(AddressOrigin::Registers),
        reason: None,
    }
}

/// The instruction `ip` touches the first 8 of the 64 bytes of this type.
pub(crate) fn typed(ip: u64, type_name: &str) -> TypedAccess {
    TypedAccess {
        pid: PID,
        ip: Address(ip),
        type_name: type_name.into(),
        type_size: 64,
        declared_at: String::new(),
        offset: 0,
        size: 8,
        path: "x".into(),
        field_type: "long".into(),
        variable: String::new(),
        through: String::new(),
        reason: None,
    }
}
