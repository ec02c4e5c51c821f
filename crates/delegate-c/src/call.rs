//! Calls.

use std::ffi::c_void;

use linewise_delegate::Error;

use crate::array::{Value, linewise_array};
use crate::client::linewise_client;
use crate::error::{Failure, LINEWISE_OK, edge, note};

/// A small operation on a value: it gets the value and an operand, and returns an answer. Runs on the
/// shard's server.
pub type linewise_operation = Option<unsafe extern "C" fn(value: *mut c_void, operand: u64) -> u64>;
/// Any function of a value: what it needs and what it answers is behind `argument`, which stays with
/// the caller, who waits.
pub type linewise_function =
    Option<unsafe extern "C" fn(value: *mut c_void, argument: *mut c_void)>;
/// Gets an answer, in the client's thread: a code, and what the operation returned if that is
/// LINEWISE_OK.
pub type linewise_then = Option<unsafe extern "C" fn(context: *mut c_void, code: i32, answer: u64)>;

/// An operation that is there.
type Operation = unsafe extern "C" fn(*mut c_void, u64) -> u64;

/// The array and the client behind their handles.
///
/// # Safety
/// Both are valid handles or null.
#[inline(always)]
unsafe fn both<'a>(
    client: *const linewise_client,
    array: *const linewise_array,
) -> Result<(&'a linewise_client, &'a linewise_array), Failure> {
    // SAFETY: the contract.
    unsafe {
        let client = linewise_client::of(client)?;
        let array = array.as_ref().ok_or_else(|| Failure::null("array"))?;
        Ok((client, array))
    }
}

/// Calls a C operation on a value.
#[inline(always)]
fn run(operation: Operation) -> impl Fn(&mut Value, u64) -> u64 + Copy + Send + 'static {
    // SAFETY: who passed the operation vouches for it; the server alone has the value now.
    move |value, operand| unsafe { operation(value.place(), operand) }
}

/// Calls `operation` on the value at `index` and waits for its answer. `answer` may be NULL.
///
/// # Safety
/// The handles are valid; `operation` may be called with such a value by the shard's server.
#[no_mangle]
pub unsafe extern "C" fn linewise_call(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    operation: linewise_operation,
    operand: u64,
    answer: *mut u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (client, array) = unsafe { both(client, array)? };
        let operation = operation.ok_or_else(|| Failure::null("operation"))?;
        let returned = client
            .client
            .call(array.target(index)?, run(operation), operand)?;
        if !answer.is_null() {
            // SAFETY: not null, and the contract.
            unsafe { answer.write(returned) };
        }
        Ok(())
    })
}

/// Calls `operation` on the value at `index`; `then` gets its answer in a later call of this client,
/// or in this one if the value is in the client's own shard. Up to fifteen such requests share a
/// line: the fast way.
///
/// # Safety
/// As linewise_call; `then` may be called with `context` until linewise_barrier or
/// linewise_client_close has returned.
#[no_mangle]
pub unsafe extern "C" fn linewise_call_async(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    operation: linewise_operation,
    operand: u64,
    then: linewise_then,
    context: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (client, array) = unsafe { both(client, array)? };
        let operation = operation.ok_or_else(|| Failure::null("operation"))?;
        let then = then.ok_or_else(|| Failure::null("then"))?;
        let target = array.target(index)?;
        let answered = move |answer: Result<u64, Error>| match answer {
            // SAFETY: the contract.
            Ok(answer) => unsafe { then(context, LINEWISE_OK, answer) },
            Err(error) => {
                let code = note(&Failure::from(error));
                // SAFETY: the contract.
                unsafe { then(context, code, 0) };
            }
        };
        Ok(client
            .client
            .call_async(target, run(operation), operand, answered)?)
    })
}

/// Calls `operation` on the value at `index`, without an answer.
///
/// # Safety
/// As linewise_call.
#[no_mangle]
pub unsafe extern "C" fn linewise_call_post(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    operation: linewise_operation,
    operand: u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (client, array) = unsafe { both(client, array)? };
        let operation = operation.ok_or_else(|| Failure::null("operation"))?;
        Ok(client
            .client
            .call_post(array.target(index)?, run(operation), operand)?)
    })
}

/// Calls `function` on the value at `index` with `argument`, and waits until it has returned.
///
/// # Safety
/// The handles are valid; `function` may be called with such a value and `argument` by the shard's
/// server while this thread waits.
#[no_mangle]
pub unsafe extern "C" fn linewise_apply(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    function: linewise_function,
    argument: *mut c_void,
) -> i32 {
    /// What goes to the server.
    struct Argument(*mut c_void);
    // SAFETY: the caller waits, and vouches for what is behind it.
    unsafe impl Send for Argument {}
    impl Argument {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }
    edge(|| {
        // SAFETY: the contract.
        let (client, array) = unsafe { both(client, array)? };
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let argument = Argument(argument);
        client.client.apply(array.target(index)?, move |value| {
            // SAFETY: the contract; the server alone has the value now.
            unsafe { function(value.place(), argument.get()) };
        })?;
        Ok(())
    })
}
