//! What a session asks of whatever runs it: a runtime of fibres, threads, tasks.

/// Runs the steps of a session.
pub(crate) trait Host: Sync {
    /// Runs `work`, the step of this number, where the command line wants it.
    fn step<T: Send>(&self, step: usize, work: impl FnOnce() -> T + Send) -> T;
}

/// How a step is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Where the session is.
    #[default]
    Normal,
    /// There too, but others run before it and after it.
    Yield,
    /// By a worker of the delegated pool.
    Delegate,
}

/// The mode of each step, from `STEP[=MODE]`.
pub(crate) fn set_mode(modes: &mut [Mode], steps: &[&str], text: &str) -> Result<(), String> {
    let (step, mode) = text.split_once('=').unwrap_or((text, "delegate"));
    let mode = match mode {
        "normal" => Mode::Normal,
        "yield" => Mode::Yield,
        "delegate" => Mode::Delegate,
        _ => {
            return Err(format!(
                "--delegate {text}: no mode is called `{mode}`; there are normal, yield and delegate"
            ));
        }
    };
    let index = steps.iter().position(|it| *it == step).ok_or_else(|| {
        let all = steps.join(", ");
        format!("--delegate {text}: no step is called `{step}`; there are {all}")
    })?;
    modes[index] = mode;
    Ok(())
}
