table! {
    Loss in losses: "Something that was not recorded.",
    latest: |row| Some(row.time);

    time: Time = "When it was noticed, CLOCK_MONOTONIC ns.",
    tid: Option<Tid> = "The thread; null if it concerns none in particular.",
    what: String = "What was lost, a short word: `ring-buffer-full`, `watchpoint-refused`, `thread-not-followed`, ...",
    count: u64 = "How many were lost.",
    detail: String = "A sentence for the report's footer.",
}

impl Loss {
    /// Something of no thread in particular.
    #[must_use]
    pub fn new(time: Time, what: &str, count: u64, detail: impl Into<String>) -> Self {
        Self {
            time,
            tid: None,
            what: what.to_owned(),
            count,
            detail: detail.into(),
        }
    }
}
