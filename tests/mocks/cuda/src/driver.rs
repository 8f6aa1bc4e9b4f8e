//! The functions of `libcuda.so.1`, under their real names.
#![allow(non_snake_case, reason = "the names that the driver's documentation has")]

use crate::abi::*;
use crate::capture;
use crate::kernels::Kernel;
use crate::memory::Pinned;
use crate::settings::VARIABLE;
use crate::state::{self, Event, Module, called, hold, wait};
use crate::streams::wait_until_idle;
use crate::work::{Source, Work};
use std::ffi::{c_int, c_uint};
use std::time::Duration;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

exports! {
    called;

    fn cuInit(flags: c_uint) {
        let mut held = hold();
        if let Ok(text) = std::env::var(VARIABLE) {
            held.configure(&text).ok_or(INVALID_VALUE)?;
        }
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if held.settings.init != SUCCESS {
            return Err(held.settings.init);
        }
        if held.settings.devices == 0 {
            return Err(NO_DEVICE);
        }
        state::started();
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<c_int>) { version.set(hold().settings.driver) }

    fn cuDeviceGetCount(count: Out<c_int>) { count.set(hold().settings.devices as c_int) }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        hold().checked_device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: OutText, len: c_int, device: c_int) {
        let device = hold().checked_device(device)?;
        name.set(&format!("Mock GPU {device}"), len)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        hold().checked_device(device)?;
        // Multiprocessors and compute capability. Every other attribute asks whether a feature exists, and it does.
        value.set(match attribute {
            16 => 4,
            75 => 8,
            76 => 0,
            _ => 1,
        })
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        let mut held = hold();
        held.checked_device(device)?;
        bytes.set(held.settings.memory_bytes as usize)
    }

    fn cuDeviceGetPCIBusId(text: OutText, len: c_int, device: c_int) {
        let device = hold().checked_device(device)?;
        text.set(&format!("FFFF:{device:02X}:1F.7"), len)
    }

    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: c_int) {
        let mut held = hold();
        let device = held.checked_device(device)?;
        held.check(device)?;
        context.set(held.context_of(device))?;
        held.device(device).retained += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let mut held = hold();
        let device = held.checked_device(device)?;
        let left = held.device(device).retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        held.device(device).retained = left;
        held.check(device)
    }

    fn cuCtxPushCurrent_v2(context: usize) {
        let mut held = hold();
        let device = held.device_of(context)?;
        if held.check(device) == Err(CONTEXT_IS_DESTROYED) {
            return Err(CONTEXT_IS_DESTROYED);
        }
        state::push_current(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<usize>) { context.set(state::pop_current()?) }

    // What libraries of trainers call, such as cudarc.
    fn cuCtxSetCurrent(context: usize) {
        if context != 0 {
            hold().device_of(context)?;
        }
        // An empty stack is what it replaces then.
        let _ = state::pop_current();
        if context != 0 {
            state::push_current(context);
        }
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<usize>) {
        let Ok(current) = state::pop_current() else { return context.set(0) };
        state::push_current(current);
        context.set(current)
    }

    fn cuCtxSynchronize() {
        let mut held = hold();
        let device = held.current()?;
        held.check_none_captured(device)?;
        let mut held = wait_until_idle(held, device, None)?;
        let streams: Vec<usize> = held.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| held.know_stream(stream));
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        hold().current()?;
        least.set(0)?;
        greatest.set(-5)
    }
}

exports! {
    called;

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let mut held = hold();
        let device = held.current()?;
        let taken = held.memory.taken_bytes(device) + held.settings.taken_bytes;
        free.set(held.settings.memory_bytes.saturating_sub(taken) as usize)?;
        total.set(held.settings.memory_bytes as usize)
    }

    fn cuMemAlloc_v2(address: Out<u64>, len: usize) { allocate(address, len) }

    fn cuMemAllocAsync(address: Out<u64>, len: usize, stream: usize) {
        hold().own_stream(stream)?;
        allocate(address, len)
    }

    fn cuMemFreeAsync(address: u64, stream: usize) {
        let mut held = hold();
        let (stream, device) = held.own_stream(stream)?;
        // A driver would not wait, and no one could notice.
        wait_until_idle(held, device, Some(stream))?.memory.free(address)
    }

    fn cuMemFree_v2(address: u64) {
        let held = hold();
        let device = held.memory.device_of(address).ok_or(INVALID_VALUE)?;
        // Like the driver, waits for the work that uses the memory.
        let answer = match wait_until_idle(held, device, None) {
            Ok(mut held) => {
                let ids: Vec<usize> = held.streams.keys().copied().collect();
                ids.into_iter().for_each(|id| held.know_stream(id));
                Ok(())
            }
            Err(code) => Err(code),
        };
        // A lost device is no refusal: its memory is gone as well.
        hold().memory.free(address)?;
        answer
    }

    fn cuMemHostRegister_v2(base: HostPointer, len: usize, _flags: c_uint) {
        let mut held = hold();
        let device = held.current()?;
        if len == 0 || base.address() == 0 {
            return Err(INVALID_VALUE);
        }
        if held.host.count().1.saturating_add(len as u64) > held.settings.pinnable_bytes {
            return Err(OUT_OF_MEMORY);
        }
        if held.host.register(device, base, len) { Ok(()) } else { Err(ALREADY_REGISTERED) }
    }

    fn cuMemHostUnregister(base: HostPointer) {
        let mut held = hold();
        let device = held.current();
        held.host.unregister(base)?;
        device.map(|_| ())
    }

    fn cuMemHostGetDevicePointer_v2(address: Out<u64>, base: HostPointer, _flags: c_uint) {
        let mut held = hold();
        held.current()?;
        if held.host.look(base.address(), 1) != Pinned::All {
            return Err(INVALID_VALUE);
        }
        address.set(base.address() as u64)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: HostPointer, len: usize, stream: usize) {
        let mut held = hold();
        let (stream, _) = held.working_stream(stream)?;
        let bytes = from.read(len);
        let source = match held.host.look(from.address(), len) {
            Pinned::All => Source::Pinned { pointer: from, held: bytes },
            Pinned::Part => return Err(INVALID_VALUE),
            Pinned::Nothing => {
                held.counts.pageable_copies += 1;
                Source::Staged(bytes)
            }
        };
        held.submit(stream, Work::Upload { from: source, to })
    }

    fn cuMemcpyBatchAsync(
        to: List<u64>,
        from: List<u64>,
        lengths: List<usize>,
        count: usize,
        attributes: List<CopyAttributes>,
        firsts: List<usize>,
        attributes_count: usize,
        failed: Out<usize>,
        stream: usize,
    ) {
        failed.set(usize::MAX)?;
        copy_list((to, from, lengths, count), (attributes, firsts, attributes_count), stream)
    }

    fn cuMemcpyBatchAsync_v2(
        to: List<u64>,
        from: List<u64>,
        lengths: List<usize>,
        count: usize,
        attributes: List<CopyAttributes>,
        firsts: List<usize>,
        attributes_count: usize,
        stream: usize,
    ) {
        copy_list((to, from, lengths, count), (attributes, firsts, attributes_count), stream)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: usize) {
        let mut held = hold();
        let (stream, _) = held.working_stream(stream)?;
        held.submit(stream, Work::Within { from, to, len: len as u64 })
    }

    fn cuMemcpyDtoH_v2(to: HostPointer, from: u64, len: usize) { read_back(to, from, len, 0) }

    fn cuMemcpyDtoHAsync_v2(to: HostPointer, from: u64, len: usize, stream: usize) {
        let mut held = hold();
        if held.host.look(to.address(), len) != Pinned::All {
            drop(held);
            // To pageable memory the driver returns once the copy is done.
            return read_back(to, from, len, stream);
        }
        let (stream, _) = held.working_stream(stream)?;
        held.submit(stream, Work::Download { from, len: len as u64, to })
    }
}

exports! {
    called;

    fn cuStreamCreateWithPriority(stream: Out<usize>, flags: c_uint, _priority: c_int) { start_stream(stream, flags) }

    fn cuStreamCreate(stream: Out<usize>, flags: c_uint) { start_stream(stream, flags) }

    fn cuThreadExchangeStreamCaptureMode(mode: InOut<c_int>) { mode.exchange(capture::exchange) }

    fn cuStreamBeginCapture_v2(stream: usize, mode: c_int) {
        let mut held = hold();
        let (id, _) = held.own_stream(stream)?;
        if stream <= 1 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        held.begin_capture(id, mode)
    }

    fn cuStreamEndCapture(stream: usize, graph: Out<usize>) {
        let mut held = hold();
        let id = held.stream(stream)?;
        graph.set(0)?;
        held.end_capture(id)
    }

    fn cuStreamIsCapturing(stream: usize, status: Out<c_int>) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let device = held.streams[&id].device;
        if stream <= 1 && held.is_implicit(device) {
            return Err(CAPTURE_IMPLICIT);
        }
        status.set(held.capture_status(id))
    }

    fn cuStreamDestroy_v2(stream: usize) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let Some(found) = held.streams.get_mut(&id).filter(|stream| stream.is_alive()) else {
            return Err(INVALID_HANDLE);
        };
        found.is_destroyed = true;
        let device = found.device;
        held.captures.remove(&id);
        state::moved();
        held.check(device)
    }

    fn cuStreamQuery(stream: usize) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let device = held.streams[&id].device;
        held.check(device)?;
        held.check_not_captured(id)?;
        if !held.streams[&id].is_idle() {
            return Err(NOT_READY);
        }
        held.know_stream(id);
        Ok(())
    }

    fn cuStreamSynchronize(stream: usize) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let device = held.streams[&id].device;
        held.check_not_captured(id)?;
        let mut held = wait_until_idle(held, device, Some(id))?;
        held.know_stream(id);
        Ok(())
    }

    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) {
        let mut held = hold();
        let (stream, _) = held.own_stream(stream)?;
        if held.event(event)?.captured_in.is_some_and(|other| held.capture_status(stream) == 0 || other != stream) {
            held.violated(format!("stream {stream:#x} was drawn into a capture by an event"));
        }
        // An event that was never recorded counts as complete.
        let Some(mark) = held.event(event)?.mark.clone() else { return Ok(()) };
        held.submit(stream, Work::Wait(mark))
    }

    fn cuStreamGetCtx(stream: usize, context: Out<usize>) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let device = held.streams[&id].device;
        context.set(held.context_of(device))
    }

    fn cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, _flags: c_uint) {
        let mut held = hold();
        let id = held.stream(stream)?;
        let device = held.streams[&id].device;
        held.check(device)?;
        held.submit(id, Work::Word { address, value })
    }

    fn cuEventCreate(event: Out<usize>, flags: c_uint) {
        let mut held = hold();
        let device = held.current()?;
        let id = held.next_handle();
        event.set(id)?;
        let has_timing = flags & DISABLE_TIMING == 0;
        held.counts.events_made += 1;
        held.events.insert(id, Event { device, has_timing, mark: None, captured_in: None });
        Ok(())
    }

    fn cuEventRecord(event: usize, stream: usize) {
        let mut held = hold();
        let (stream, device) = held.own_stream(stream)?;
        if held.event(event)?.device != device {
            return Err(INVALID_HANDLE);
        }
        let is_captured = held.capture_status(stream) != 0;
        let mark = held.mark(stream)?;
        let event = held.event(event)?;
        event.mark = (!is_captured).then_some(mark);
        event.captured_in = is_captured.then_some(stream);
        Ok(())
    }

    fn cuEventQuery(event: usize) {
        let mut held = hold();
        let device = held.event(event)?.device;
        held.check(device)?;
        held.check_event(event)?;
        let Some(mark) = held.event(event)?.mark.clone() else { return Ok(()) };
        if mark.done.get().is_none() {
            return Err(NOT_READY);
        }
        held.known.join(&mark.clock);
        Ok(())
    }

    fn cuEventSynchronize(event: usize) {
        let mut held = hold();
        let device = held.event(event)?.device;
        held.check_event(event)?;
        let Some(mark) = held.event(event)?.mark.clone() else { return Ok(()) };
        loop {
            held.check(device)?;
            if mark.done.get().is_some() {
                held.known.join(&mark.clock);
                return Ok(());
            }
            held = wait(held);
        }
    }

    fn cuEventElapsedTime(millis: Out<f32>, start: usize, end: usize) {
        let mut held = hold();
        let mut moment = |event: usize| {
            let event = held.event(event)?;
            let mark = event.mark.clone().filter(|_| event.has_timing).ok_or(INVALID_HANDLE)?;
            mark.done.get().copied().ok_or(NOT_READY)
        };
        let (start, end) = (moment(start)?, moment(end)?);
        let forth = end.saturating_duration_since(start).as_secs_f64();
        let back = start.saturating_duration_since(end).as_secs_f64();
        millis.set(((forth - back) * 1e3) as f32)
    }

    fn cuEventDestroy_v2(event: usize) {
        let mut held = hold();
        let event = held.events.remove(&event).ok_or(INVALID_HANDLE)?;
        held.check(event.device)
    }
}

exports! {
    called;

    fn cuModuleLoadData(module: Out<usize>, image: ModuleImage) {
        let mut held = hold();
        let device = held.current()?;
        let text = match image.elf() {
            Some(_) if !held.settings.takes_cubins => return Err(NO_BINARY),
            Some(elf) => {
                held.counts.cubins += 1;
                kernels_of(elf)
            }
            None => image.ptx().filter(|text| text.contains(".version")).ok_or(INVALID_PTX)?.to_owned(),
        };
        let id = held.next_handle();
        module.set(id)?;
        held.modules.insert(id, Module { device, text });
        Ok(())
    }

    fn cuModuleUnload(module: usize) {
        let mut held = hold();
        let unloaded = held.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        held.functions.retain(|_, (owner, _)| *owner != module);
        held.check(unloaded.device)
    }

    fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) {
        let mut held = hold();
        let text = &held.modules.get(&module).ok_or(INVALID_HANDLE)?.text;
        let name = name.get().ok_or(INVALID_VALUE)?;
        let is_there = text.contains(&format!(".entry {name}("));
        let kernel = Kernel::named(name).filter(|_| is_there).ok_or(NOT_FOUND)?;
        let id = held.next_handle();
        function.set(id)?;
        held.functions.insert(id, (module, kernel));
        Ok(())
    }

    fn cuFuncLoad(function: usize) {
        if hold().functions.contains_key(&function) { Ok(()) } else { Err(INVALID_HANDLE) }
    }

    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        _shared_bytes: c_uint,
        stream: usize,
        parameters: Parameters,
        _extra: usize,
    ) {
        let mut held = hold();
        let (stream, device) = held.working_stream(stream)?;
        let &(module, kernel) = held.functions.get(&function).ok_or(INVALID_HANDLE)?;
        if held.modules.get(&module).is_none_or(|module| module.device != device) {
            return Err(INVALID_HANDLE);
        }
        let grid_is_right = grid_x > 0 && (1..=65_535).contains(&grid_y) && (1..=65_535).contains(&grid_z);
        let threads = u64::from(block_x) * u64::from(block_y) * u64::from(block_z);
        if !grid_is_right || !(1..=1024).contains(&threads) {
            return Err(INVALID_VALUE);
        }
        held.submit(stream, Work::Launch(kernel.launch(&parameters)?))
    }
}

/// The kernels of an ELF file, by the names of its sections, as PTX declares them.
fn kernels_of(elf: &[u8]) -> String {
    const SECTION: &[u8] = b".text.";
    let starts = (0..elf.len()).filter(|&at| elf[at..].starts_with(SECTION));
    let names = starts.map(|at| elf[at + SECTION.len()..].split(|&byte| byte == 0).next().unwrap_or_default());
    names.map(|name| format!(".entry {}(\n", String::from_utf8_lossy(name))).collect()
}

/// Copies of a list, in its order. Stricter than a driver, which also takes memory that is not registered.
fn copy_list(
    (to, from, lengths, count): (List<u64>, List<u64>, List<usize>, usize),
    (attributes, firsts, attributes_count): (List<CopyAttributes>, List<usize>, usize),
    stream: usize,
) -> Result<(), Code> {
    let mut held = hold();
    let (id, _) = held.own_stream(stream)?;
    let attributes = attributes.get(attributes_count)?;
    let firsts = firsts.get(attributes_count)?;
    let is_right = |attributes: &CopyAttributes| (1..=3).contains(&attributes.order) && attributes.flags <= 1;
    if stream <= 1 || count == 0 || firsts.first() != Some(&0) || !attributes.iter().all(is_right) {
        return Err(INVALID_VALUE);
    }
    let from: Vec<HostPointer> = from.get(count)?.into_iter().map(HostPointer::of_number).collect();
    let lengths = lengths.get(count)?;
    if from.iter().zip(&lengths).any(|(from, &len)| held.host.look(from.address(), len) != Pinned::All) {
        return Err(INVALID_VALUE);
    }
    held.counts.lists += 1;
    held.counts.overlapping += u64::from(attributes.iter().all(|attributes| attributes.flags == 1));
    for ((to, from), len) in to.get(count)?.into_iter().zip(from).zip(lengths) {
        let source = Source::Pinned { pointer: from, held: from.read(len) };
        held.submit(id, Work::Upload { from: source, to })?;
    }
    Ok(())
}

/// Copies to the host behind the work that the stream has, and waits for it.
fn allocate(address: Out<u64>, len: usize) -> Result<(), Code> {
    let mut held = hold();
    let device = held.current()?;
    let taken = held.memory.taken_bytes(device) + held.settings.taken_bytes;
    if len == 0 {
        return Err(INVALID_VALUE);
    }
    if (len as u64).saturating_add(taken) > held.settings.memory_bytes {
        return Err(OUT_OF_MEMORY);
    }
    held.counts.allocations_made += 1;
    address.set(held.memory.allocate(device, len))
}

fn read_back(to: HostPointer, from: u64, len: usize, stream: usize) -> Result<(), Code> {
    to.write(&read(from, len, stream)?);
    Ok(())
}

/// What lies on the device once the stream has done its work.
fn read(from: u64, len: usize, stream: usize) -> Result<Vec<u8>, Code> {
    let mut held = hold();
    let (stream, device) = held.working_stream(stream)?;
    let answer = held.next_handle();
    held.submit(stream, Work::Read { from, len: len as u64, answer, time: Duration::ZERO })?;
    let mut held = wait_until_idle(held, device, Some(stream))?;
    held.know_stream(stream);
    held.answers.remove(&answer).ok_or(ILLEGAL_ADDRESS)
}

fn start_stream(stream: Out<usize>, flags: c_uint) -> Result<(), Code> {
    let mut held = hold();
    let device = held.current()?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    let id = held.start_stream(device, false);
    held.streams.get_mut(&id).into_iter().for_each(|stream| stream.is_blocking = flags == 0);
    stream.set(id)
}
