table! {
    /// The round trip is always of that moment; the costs are repeated from an earlier row where it shows that they still hold.
    Latency in latencies: "The cost of moving a line between two CPUs, as measured at one moment.",
    latest: |row| Some(row.time);

    time: Time = "When it was measured, CLOCK_MONOTONIC ns.",
    cpu_a: CpuId = "One CPU.",
    cpu_b: CpuId = "The other CPU.",
    round_trip_ns: f64 = "Ping-pong round trip, median, ns.",
    transfer_idle_ns: f64 = "Time at the line for each transfer to a thread when the other CPU never wants it back, ns.",
    transfer_busy_ns: f64 = "The same when the other CPU is at the line for busy_share of its time, ns.",
    busy_share: f64 = "See transfer_busy_ns, 0 to 1.",
    transfer_crowded_ns: f64 = "The same when the other CPU is at the line for crowded_share of its time, ns.",
    crowded_share: f64 = "See transfer_crowded_ns, 0 to 1.",
    transfer_saturated_ns: f64 = "The same when both CPUs want the line all the time, ns.",
    hit_ns: f64 = "One serialised access to a line that this core holds, ns.",
}
