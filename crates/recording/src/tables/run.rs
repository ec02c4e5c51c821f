table! {
    /// It is written when a recording ends properly, for who joins many recordings in SQL. What is read is `run.json`.
    RunFacts in run: "The facts of the run that are scalars, in one row, as `run.json` has them.",
    expected: |_| false;

    format_version: u32 = "Format version of the tables.",
    id: String = "The number by which the recording is known wherever it lies, 128 bits in lower-case hex.",
    linewise_version: String = "The version of linewise that wrote it.",
    complete: bool = "Whether the recording was ended properly.",
    command: String = "The command and its arguments with blanks between them, or what was attached to.",
    pid: Pid = "The first process.",
    launched: bool = "Whether linewise started the target; false: attached.",
    source: Source = "Where the rows come from.",
    source_reason: String = "Why that source was chosen.",
    start: Time = "When recording began, CLOCK_MONOTONIC ns.",
    end as stop (end before 3): Time = "When it ended, CLOCK_MONOTONIC ns.",
    ended_by: String = "Why it ended: `target-exited`, `duration`, `interrupted`, `killed`.",
    exit_code: Option<u32> = "The target's exit code, if it exited by itself while recorded.",
    exit_signal: Option<u32> = "The signal that ended the target, if one did.",
    line_size: u64 = "Line size of the machine in bytes.",
    cpus: u32 = "Online CPUs.",
    host: String = "The machine's name.",
    boot_id: String = "The kernel's name for the time since the machine was started, within which CLOCK_MONOTONIC counts on.",
    cpu_model: String = "CPU model as the kernel names it.",
    hypervisor: String = "Hypervisor vendor, empty on bare metal.",
    kernel: String = "Kernel release.",
    overhead_budget: f64 = "What the recording was allowed to cost, as a share of the target's CPU time.",
    overhead_estimated: f64 = "What it is estimated to have cost, likewise.",
    samples_per_second: f64 = "Samples a second of thread time, last in force.",
    watches_per_second: f64 = "Watches a second of all threads, last in force.",
    collector_cpu_ns: u64 = "CPU time of the collector, ns.",
    collector_rss_bytes: u64 = "Highest resident size of the collector, bytes.",
    accesses: Option<f64> = "Accesses of an exact run, all threads; an estimate where a share of the lines was followed.",
    one_line_in: Option<u32> = "One line in so many was followed in an exact run; 1 is all.",
    order as access_order (order before 3): Option<Order> = "The order in which accesses of different threads were taken in an exact run.",
}

impl RunFacts {
    /// The row of a run.
    #[must_use]
    pub fn of(info: &RunInfo) -> Self {
        let unsigned = |number: Option<i32>| number.and_then(|it| u32::try_from(it).ok());
        let (overhead, exact) = (&info.overhead, info.exact.as_ref());
        Self {
            format_version: info.format_version,
            id: info.id.clone(),
            linewise_version: info.linewise_version.clone(),
            complete: info.complete,
            command: info.command.join(" "),
            pid: info.pid,
            launched: info.launched,
            source: info.source,
            source_reason: info.source_reason.clone(),
            start: info.start,
            end: info.end,
            ended_by: info.ended_by.clone(),
            exit_code: unsigned(info.exit_code),
            exit_signal: unsigned(info.exit_signal),
            line_size: info.line_size,
            cpus: info.cpus,
            host: info.host.clone(),
            boot_id: info.boot_id.clone(),
            cpu_model: info.cpu_model.clone(),
            hypervisor: info.hypervisor.clone(),
            kernel: info.kernel.clone(),
            overhead_budget: overhead.budget,
            overhead_estimated: overhead.estimated,
            samples_per_second: overhead.samples_per_second,
            watches_per_second: overhead.watches_per_second,
            collector_cpu_ns: overhead.collector_cpu_ns,
            collector_rss_bytes: overhead.collector_rss_bytes,
            accesses: exact.map(|exact| exact.accesses),
            one_line_in: exact.map(|exact| exact.one_line_in),
            order: exact.map(|exact| exact.order),
        }
    }
}
