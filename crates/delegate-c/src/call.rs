//! Calls.

use std::ffi::c_void;
use std::time::Duration;

use linewise_delegate::{Client, Error, Target};
use linewise_edge::{Passed, passed};

use crate::array::{Value, linewise_array};
use crate::client::linewise_client;
use crate::domain::linewise_domain;
use crate::error::{Failure, LINEWISE_OK, edge, note};

/// A small operation on a value: it gets the value and an operand, and returns an answer. Runs on the
/// shard's server.
pub type linewise_operation =
    Option<unsafe extern "C-unwind" fn(value: *mut c_void, operand: u64) -> u64>;
/// Any function of a value: what it needs and what it answers is behind `argument`, which stays with
/// the caller, who waits.
pub type linewise_function =
    Option<unsafe extern "C-unwind" fn(value: *mut c_void, argument: *mut c_void)>;
/// Gets an answer, in the client's thread: a code, and what the operation returned if that is
/// LINEWISE_OK.
pub type linewise_then =
    Option<unsafe extern "C-unwind" fn(context: *mut c_void, code: i32, answer: u64)>;

/// Any function of several values of one shard, whose addresses it gets.
pub type linewise_together = Option<
    unsafe extern "C-unwind" fn(values: *const *mut c_void, count: usize, argument: *mut c_void),
>;

/// A value among others that are used together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_place {
    /// Where it is.
    pub array: *const linewise_array,
    /// Its index there.
    pub index: usize,
}

/// Those that are there.
type Operation = unsafe extern "C-unwind" fn(*mut c_void, u64) -> u64;
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Then = unsafe extern "C-unwind" fn(*mut c_void, i32, u64);

/// What every call needs: the client and the array behind their handles, and the function that was
/// passed under this name.
///
/// # Safety
/// Both are valid handles or null.
#[inline(always)]
unsafe fn needs<'a, F>(
    client: *const linewise_client,
    array: *const linewise_array,
    (name, function): (&'static str, Option<F>),
) -> Result<(&'a Client<'static>, &'a linewise_array, F), Failure> {
    // SAFETY: the contract.
    let (client, array) = unsafe { (linewise_client::of(client)?, linewise_array::of(array)?) };
    let function = function.ok_or_else(|| Failure::null(name))?;
    Ok((client.get(), array, function))
}

/// # Safety
/// `place` is null or a place for an answer.
#[inline(always)]
unsafe fn tell(place: *mut u64, answer: u64) {
    if !place.is_null() {
        // SAFETY: not null, and the contract.
        unsafe { place.write(answer) };
    }
}

/// Calls a C operation on a value.
#[inline(always)]
fn run(operation: Operation) -> impl Fn(&mut Value, u64) -> u64 + Copy + Send + 'static {
    // SAFETY: who passed the operation vouches for it; the server alone has the value now.
    move |value, operand| unsafe { operation(value.place(), operand) }
}

/// Calls a C operation on a value; `then` gets its answer.
#[inline(always)]
fn send(
    client: &Client<'static>,
    target: Target<'_, Value>,
    operation: Operation,
    operand: u64,
    then: impl FnOnce(Result<u64, Error>) + 'static,
) -> Result<(), Failure> {
    let address = operation as usize as u64;
    // SAFETY: what `run` makes of two operations differs in their addresses only.
    unsafe { client.call_async_identified(target, run(operation), address, operand, then)? };
    Ok(())
}

/// Calls a C function with its argument on a value.
pub(crate) fn apply(
    function: Function,
    argument: *mut c_void,
) -> impl FnOnce(&mut Value) + Send + 'static {
    let argument = Passed(argument);
    // SAFETY: who passed both vouches for them; the server alone has the value now.
    move |value| unsafe { function(value.place(), argument.get()) }
}

/// Gives an answer to a C callback.
#[inline(always)]
fn answered(then: Then, context: *mut c_void) -> impl FnOnce(Result<u64, Error>) {
    move |answer| {
        let (code, answer) = match answer {
            Ok(answer) => (LINEWISE_OK, answer),
            Err(error) => (note(&Failure::from(error)), 0),
        };
        // SAFETY: who passed the callback vouches for it and its context.
        unsafe { then(context, code, answer) };
    }
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
        // SAFETY: the handles are valid, and so is a place for the answer that is not null.
        unsafe {
            let (client, array, operation) = needs(client, array, ("operation", operation))?;
            let returned = client.call(array.target(index)?, run(operation), operand)?;
            tell(answer, returned);
        }
        Ok(())
    })
}

/// Calls `operation` on the value at `index` and waits for its answer, for not longer than so many
/// nanoseconds: LINEWISE_TIMED_OUT then, and the operation may have run or may yet. A call on the
/// client's own shard runs here and takes as long as it takes. `answer` may be NULL.
///
/// # Safety
/// As linewise_call.
#[no_mangle]
pub unsafe extern "C" fn linewise_call_timeout(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    operation: linewise_operation,
    operand: u64,
    nanoseconds: u64,
    answer: *mut u64,
) -> i32 {
    edge(|| {
        // SAFETY: the handles are valid, and so is a place for the answer that is not null.
        unsafe {
            let (client, array, operation) = needs(client, array, ("operation", operation))?;
            let (time, operation) = (Duration::from_nanos(nanoseconds), run(operation));
            let call = move |value: &mut Value| operation(value, operand);
            tell(
                answer,
                client.apply_timeout(array.target(index)?, time, call)?,
            );
        }
        Ok(())
    })
}

/// Calls `operation` on the value at `index`; `then` gets its answer in a later call of this client,
/// or in this one if the value is in the client's own shard. Up to 63 such requests share a
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
        let (client, array, operation) = unsafe { needs(client, array, ("operation", operation))? };
        let then = then.ok_or_else(|| Failure::null("then"))?;
        let target = array.target(index)?;
        let then = answered(then, context);
        send(client, target, operation, operand, then)
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
        let (client, array, operation) = unsafe { needs(client, array, ("operation", operation))? };
        let target = array.target(index)?;
        send(client, target, operation, operand, |_| {})
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
    edge(|| {
        // SAFETY: the contract.
        let (client, array, function) = unsafe { needs(client, array, ("function", function))? };
        Ok(client.apply(array.target(index)?, apply(function, argument))?)
    })
}

/// Calls `function` on the value at `index` with `argument`, which stays as it is until `then` gets the
/// code of the outcome, with 0 for an answer: in a later call of this client, or in this one if the
/// value is in the client's own shard.
///
/// # Safety
/// As linewise_apply, until `then` is called; `then` as for linewise_call_async.
#[no_mangle]
pub unsafe extern "C" fn linewise_apply_async(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    function: linewise_function,
    argument: *mut c_void,
    then: linewise_then,
    context: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (client, array, function) = unsafe { needs(client, array, ("function", function))? };
        let then = answered(then.ok_or_else(|| Failure::null("then"))?, context);
        let done = move |outcome: Result<(), Error>| then(outcome.map(|()| 0));
        Ok(client.apply_async(array.target(index)?, apply(function, argument), done)?)
    })
}

/// Calls `function` on the value at `index` with `argument`, without an answer.
///
/// # Safety
/// As linewise_apply, until linewise_barrier or linewise_client_close has returned.
#[no_mangle]
pub unsafe extern "C" fn linewise_apply_post(
    client: *mut linewise_client,
    array: *const linewise_array,
    index: usize,
    function: linewise_function,
    argument: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (client, array, function) = unsafe { needs(client, array, ("function", function))? };
        Ok(client.post(array.target(index)?, apply(function, argument))?)
    })
}

/// Calls `operation` on the values at `count` places of `indexes`, waits for all answers, and writes
/// them to `answers` (NULL for none) in that order. 63 requests share a line, and shards work at
/// the same time: the fast way to wait. If a place is out of range nothing is called; after another error `answers` is as it was, and some calls may be made.
///
/// # Safety
/// As linewise_call; `indexes` and `answers` point to `count` places each.
#[no_mangle]
pub unsafe extern "C" fn linewise_call_batch(
    client: *mut linewise_client,
    array: *const linewise_array,
    indexes: *const usize,
    count: usize,
    operation: linewise_operation,
    operand: u64,
    answers: *mut u64,
) -> i32 {
    edge(|| {
        // SAFETY: the handles are valid, and what is not null has `count` places; there is an answer for each.
        unsafe {
            let (client, array, operation) = needs(client, array, ("operation", operation))?;
            let indexes = passed(indexes, count, "indexes")?;
            let returned = array.call_batch(client, run(operation), operand, indexes)?;
            if !answers.is_null() {
                answers.copy_from_nonoverlapping(returned.as_ptr(), count);
            }
        }
        Ok(())
    })
}

/// Calls `function` on the values at `count` places of `indexes`, each with its own of `arguments`, and
/// waits until all have returned. Shards work at the same time. If a place is out of range nothing is
/// called; after another error some calls may be made.
///
/// # Safety
/// As linewise_apply, for each argument; `indexes` and `arguments` point to `count` places each.
#[no_mangle]
pub unsafe extern "C" fn linewise_apply_batch(
    client: *mut linewise_client,
    array: *const linewise_array,
    indexes: *const usize,
    count: usize,
    function: linewise_function,
    arguments: *const *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the handles are valid, and what is not null has `count` places.
        let (client, array, function, indexes, arguments) = unsafe {
            let (client, array, function) = needs(client, array, ("function", function))?;
            let indexes = passed(indexes, count, "indexes")?;
            let arguments = passed(arguments, count, "arguments")?;
            (client, array, function, indexes, arguments)
        };
        let targets = indexes.iter().map(|index| array.target(*index));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let calls = arguments.iter().map(|argument| apply(function, *argument));
        client.apply_all(targets.into_iter().zip(calls))?;
        Ok(())
    })
}

/// Calls `function` once with the addresses of the values at `count` places, which live in one shard, and
/// with `argument`; waits until it has returned. LINEWISE_ARGUMENT if they live in different shards or
/// if one is named twice.
///
/// # Safety
/// As linewise_apply; `places` points to so many, with valid handles.
#[no_mangle]
pub unsafe extern "C" fn linewise_apply_together(
    client: *mut linewise_client,
    places: *const linewise_place,
    count: usize,
    function: linewise_together,
    argument: *mut c_void,
) -> i32 {
    edge(|| {
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let argument = Passed(argument);
        // SAFETY: the handles are valid, and so are the places; who passed the function vouches for it, and
        // the server has the values alone while it runs.
        unsafe {
            let client = linewise_client::of(client)?.get();
            let place =
                |place: &linewise_place| linewise_array::of(place.array)?.target(place.index);
            let places = passed(places, count, "places")?.iter().map(place);
            let run = move |values: Vec<&mut Value>| {
                let values: Vec<_> = values.into_iter().map(Value::place).collect();
                function(values.as_ptr(), values.len(), argument.get());
            };
            Ok(client.apply_together(places.collect::<Result<Vec<_>, _>>()?, run)?)
        }
    })
}

/// Calls `function` on the value at `index` with `argument`, and waits until it has returned, from any
/// thread: one that has no client because it calls seldom. Slower than linewise_apply.
///
/// # Safety
/// The handles are valid; `function` may be called with such a value and `argument` by the shard's
/// server while this thread waits.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_apply(
    domain: *const linewise_domain,
    array: *const linewise_array,
    index: usize,
    function: linewise_function,
    argument: *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (domain, array) = unsafe { (linewise_domain::of(domain)?, linewise_array::of(array)?) };
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let target = array.target(index)?;
        let handle = domain.handle();
        handle.apply_waiting(target, apply(function, argument))?;
        Ok(())
    })
}
