//! Pixels of several JPEGs at a time.

use super::memory::{HostMemory, Memory};
use super::resampler::{Decoded, Resampler, Resampling};
use super::table::{self, CHANNELS_MAX, Handle, Image};
use super::{Library, NvjpegError};
use crate::cuda::{Bounce, Context, DeviceMemory, Span, Stream};
use std::ffi::{c_int, c_uint};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a pixel.
const CHANNELS: usize = 3;

/// Alignment of images on the device.
const ALIGNMENT: usize = 256;

/// The part of a decoder's memory that is for weights: those of a photograph take a fiftieth of its pixels.
const TABLE_PART: usize = 16;

/// Most bytes that come back by one copy.
const BACK_BYTES: usize = 4 << 20;

/// Threads that read the codes of a batch, where the GPU does not. They are the caller's: it has several decoders.
const THREADS: c_int = 1;

/// An image on the host: red, green and blue of each pixel, row by row without gaps, as it is stored (not turned).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// 3 bytes for each pixel; none of what stays on the device.
    pub bytes: Vec<u8>,
    /// Whether it is what was asked for in [`Request::resampling`].
    pub is_resampled: bool,
    /// Whether it is in [`Request::to`].
    pub is_resident: bool,
}

/// A JPEG to decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The file, of three components.
    pub file: &'a [u8],
    /// Its rows and columns, as they are stored.
    pub size: (u32, u32),
    /// What is to be made of its pixels before they come to the host.
    pub resampling: Option<&'a Resampling>,
    /// Where on the device that is to stay, instead of coming to the host: as many bytes as it has.
    pub to: Option<&'a Span>,
}

/// Decodes one batch of images after the other. It is of one thread at a time; several decoders work side by side.
pub struct Decoder {
    /// The GPU's own engines for JPEGs; where there are none its multiprocessors, which know more kinds of JPEG.
    engine: Engine,
    /// Which engines they are, or why there are none.
    hardware: Result<Hardware, NvjpegError>,
    stream: Stream,
    memory: DeviceMemory,
    resampler: Resampler,
    /// What pixels come back through.
    back: Bounce,
    /// Memory of pixels that are no longer used.
    spare: Vec<Vec<u8>>,
}

/// The engines for JPEGs that a GPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Their number; 0 if the library does not say.
    pub engines: u32,
    /// Cores of each.
    pub cores: u32,
}

/// Where an image is that was to be resampled.
#[derive(Clone)]
enum Made {
    /// It was not: its pixels are as they were decoded.
    Not,
    /// In the decoder's memory.
    Here(Range<usize>),
    /// Where the request wanted it.
    There,
}

/// What decodes: a handle of a backend, its state, and a place for the header of a file.
struct Engine {
    library: Library,
    context: Context,
    handle: Handle,
    state: Handle,
    header: Handle,
    /// What the handle and its state have their memory from, of the device and of the host; they hold the addresses.
    memory: (Arc<Memory<DeviceMemory>>, Arc<Memory<HostMemory>>),
    /// Images of the batches that it is ready for.
    batch: usize,
}

// SAFETY: the handles are memory of the library, which has no thread affinity as long as one thread at a time uses
// each: every call that changes them takes `&mut`.
unsafe impl Send for Engine {}

impl Decoder {
    pub(super) fn new(library: &Library, context: &Context, bytes: usize) -> Result<Decoder, NvjpegError> {
        // A GPU without such an engine refuses the handle, as does one that the library cannot reach it of.
        let (engine, hardware) = match Engine::new(library, context, table::NVJPEG_BACKEND_HARDWARE) {
            Ok(engine) => {
                let hardware = engine.info();
                (engine, Ok(hardware))
            }
            Err(error) => (Engine::new(library, context, table::NVJPEG_BACKEND_GPU_HYBRID)?, Err(error)),
        };
        let resampler = Resampler::new(context, bytes / TABLE_PART)?;
        let memory = DeviceMemory::new(context, bytes - bytes / TABLE_PART)?;
        let back = Bounce::new(context, BACK_BYTES).map_err(|error| NvjpegError::Host(error.to_string()))?;
        let (stream, spare) = (Stream::new(context)?, Vec::new());
        Ok(Decoder { engine, hardware, stream, memory, resampler, back, spare })
    }

    /// The engines for JPEGs that the GPU has; or why none can be used.
    ///
    /// # Errors
    /// What the library says: of a GPU that has none, that it is of another architecture. Any other status may mean
    /// that `libnvcuvid.so.1`, a part of the driver, is not there.
    pub fn hardware(&self) -> Result<Hardware, &NvjpegError> {
        self.hardware.as_ref().copied()
    }

    /// Bytes of the device that an image of this size takes. A batch's images take no more than [`room`](Decoder::room)
    /// in all.
    pub fn bytes_of((height, width): (u32, u32)) -> usize {
        (height as usize).saturating_mul(width as usize).saturating_mul(CHANNELS).saturating_add(ALIGNMENT)
    }

    /// The same of an image that is resampled there.
    pub fn bytes_of_resampled(size: (u32, u32), resampling: &Resampling) -> usize {
        let (between, made) = resampling.bytes();
        Decoder::bytes_of(size).saturating_add(between).saturating_add(made).saturating_add(2 * ALIGNMENT)
    }

    /// Bytes of the device for the images of one batch.
    pub fn room(&self) -> usize {
        self.memory.len()
    }

    /// The pixels of JPEGs, or why there are none. Each JPEG has three components and the given rows and columns. The
    /// pixels depend on the file alone, and not on the files beside it: a JPEG that the GPU's engines decline has an
    /// error, and no multiprocessor decodes it, because it rounds differently.
    ///
    /// # Errors
    /// An error of the device, not of an image.
    pub fn decode(&mut self, jpegs: &[(&[u8], (u32, u32))]) -> Result<Vec<Result<Pixels, NvjpegError>>, NvjpegError> {
        let whole = |&(file, size): &(_, _)| Request { file, size, ..Request::default() };
        self.decode_resampled(&jpegs.iter().map(whole).collect::<Vec<_>>())
    }

    /// The same for JPEGs that are cut and resized on the device. One without room there, or whose resampling is for
    /// images of another size, comes as it was decoded ([`Pixels::is_resampled`]). Pixels that stay on the device
    /// ([`Request::to`]) are there when this returns, for any stream.
    ///
    /// # Errors
    /// As [`decode`](Decoder::decode).
    pub fn decode_resampled(&mut self, jpegs: &[Request<'_>]) -> Result<Vec<Result<Pixels, NvjpegError>>, NvjpegError> {
        let (mut places, mut end) = (Vec::with_capacity(jpegs.len()), 0);
        for jpeg in jpegs {
            places.push(self.place(jpeg.file, jpeg.size, &mut end));
        }
        self.decode_to(jpegs, &mut places)?;
        let made = self.resample(jpegs, &places, end)?;
        let wanted = places.iter().zip(&made).filter_map(|(place, made)| match made {
            Made::Not => place.as_ref().ok(),
            Made::Here(range) => Some(range),
            Made::There => None,
        });
        let mut brought = self.bring(&wanted.cloned().collect::<Vec<_>>())?.into_iter();
        let decoded = places.into_iter().zip(made).zip(jpegs).map(|((place, made), jpeg)| {
            place?;
            let is_resident = matches!(made, Made::There);
            let bytes = if is_resident { Vec::new() } else { brought.next().unwrap_or_default() };
            let of = jpeg.resampling.filter(|_| !matches!(made, Made::Not));
            let (height, width) = of.map_or(jpeg.size, Resampling::size);
            Ok(Pixels { height, width, bytes, is_resampled: of.is_some(), is_resident })
        });
        Ok(decoded.collect())
    }

    /// Takes back the memory of an image's pixels for the next ones, as much as the images of one batch take. New
    /// memory costs more than the copy to it: the system clears each page of it.
    pub fn reuse(&mut self, pixels: Vec<u8>) {
        let kept: usize = self.spare.iter().map(Vec::capacity).sum();
        if pixels.capacity() > 0 && kept + pixels.capacity() <= self.room() {
            self.spare.push(pixels);
        }
    }

    /// Copies ranges of the device's memory to the host, adjacent ones in one copy.
    fn bring(&mut self, ranges: &[Range<usize>]) -> Result<Vec<Vec<u8>>, NvjpegError> {
        let mut memory = |range: &Range<usize>| {
            let mut memory = self.spare.pop().unwrap_or_default();
            memory.clear();
            memory.reserve(range.len());
            memory
        };
        let mut brought: Vec<Vec<u8>> = ranges.iter().map(&mut memory).collect();
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by_key(|&index| ranges[index].start);
        // The first range that is not complete, and where it continues.
        let (mut next, mut at) = (0, 0);
        while next < order.len() {
            let start = at.max(ranges[order[next]].start);
            let (mut end, mut last) = (start, next);
            while let Some(range) = order.get(last).map(|&index| &ranges[index])
                && range.start <= end.next_multiple_of(ALIGNMENT).max(start)
                && end < start + BACK_BYTES
            {
                end = range.end.min(start + BACK_BYTES);
                last += 1;
            }
            let Some(span) = Span::new(&self.memory, start..end) else { break };
            self.back.fetch(&span, 0)?;
            let bytes = self.back.memory();
            for &index in &order[next..last] {
                let (from, to) = (ranges[index].start.max(start), ranges[index].end.min(end));
                brought[index].extend_from_slice(&bytes[from - start..to - start]);
            }
            (next, at) = if end < ranges[order[last - 1]].end { (last - 1, end) } else { (last, end) };
        }
        Ok(brought)
    }

    /// Decodes the images that have a place. Those that could not be have an error instead then.
    fn decode_to(
        &mut self,
        jpegs: &[Request<'_>],
        places: &mut [Result<Range<usize>, NvjpegError>],
    ) -> Result<(), NvjpegError> {
        let chosen: Vec<usize> = (0..jpegs.len()).filter(|&index| places[index].is_ok()).collect();
        let request = |index: usize| {
            let place = places[index].as_ref().ok()?;
            Some((jpegs[index].file, self.image(place, jpegs[index].size.1)))
        };
        let requests: Vec<(&[u8], Image)> = chosen.iter().filter_map(|&index| request(index)).collect();
        let Decoder { engine, hardware, stream, .. } = self;
        // One that it does not take would send back all of them.
        let (taken, others): (Vec<usize>, Vec<usize>) =
            (0..requests.len()).partition(|&index| engine.takes(requests[index].0));
        let batch: Vec<(&[u8], Image)> = taken.iter().map(|&index| requests[index]).collect();
        let mut failed = Vec::new();
        let mut note = |index: usize, decoded: Result<(), NvjpegError>| match decoded {
            Err(error) if error.is_of_image() => {
                failed.push((index, error));
                Ok(())
            }
            decoded => decoded,
        };
        match if batch.is_empty() { Ok(()) } else { engine.decode_batch(stream, &batch) } {
            Ok(()) => {}
            // It does not say which one.
            Err(error) if error.is_of_image() => {
                for index in taken {
                    note(index, engine.decode_batch(stream, &[requests[index]]))?;
                }
            }
            Err(error) => return Err(error),
        }
        for index in others {
            let (jpeg, image) = requests[index];
            let unknown = NvjpegError::new("nvjpegDecodeBatchedSupported", table::NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
            note(index, if hardware.is_ok() { Err(unknown) } else { engine.decode(stream, jpeg, image) })?;
        }
        for (request, error) in failed {
            places[chosen[request]] = Err(error);
        }
        Ok(())
    }

    /// Resamples those that are to be, and for which there is room after `end`.
    fn resample(
        &mut self,
        jpegs: &[Request<'_>],
        places: &[Result<Range<usize>, NvjpegError>],
        mut end: usize,
    ) -> Result<Vec<Made>, NvjpegError> {
        let (mut made, mut wanted, mut tables) = (vec![Made::Not; jpegs.len()], Vec::new(), self.resampler.room());
        for (index, (jpeg, place)) in jpegs.iter().zip(places).enumerate() {
            let (Some(resampling), Ok(place)) = (jpeg.resampling, place) else { continue };
            let ((between, bytes), table) = (resampling.bytes(), resampling.table_bytes());
            let there = jpeg.to.filter(|to| to.len() == bytes);
            let here = if there.is_some() { 0 } else { bytes };
            let all = between.saturating_add(here).saturating_add(2 * ALIGNMENT);
            if !resampling.is_of(jpeg.size) || all > self.memory.len().saturating_sub(end) || table > tables {
                continue;
            }
            tables -= table;
            let start = (end + between).next_multiple_of(ALIGNMENT);
            let range = start..start + here;
            let own = || Span::new(&self.memory, range.clone());
            let Some(to) = there.cloned().or_else(own) else { continue };
            let (width, pixels) = (jpeg.size.1, place.start);
            wanted.push(Decoded { resampling, width, pixels, between: end, made: to });
            end = range.end.next_multiple_of(ALIGNMENT);
            made[index] = if there.is_some() { Made::There } else { Made::Here(range) };
        }
        self.resampler.run(&self.stream, &self.memory, wanted)?;
        Ok(made)
    }

    /// Looks at the image's header, and finds a place for its pixels after `end`.
    fn place(&self, jpeg: &[u8], size: (u32, u32), end: &mut usize) -> Result<Range<usize>, NvjpegError> {
        if self.engine.size(jpeg)? != size {
            return Err(NvjpegError::Size { size });
        }
        let len = Decoder::bytes_of(size) - ALIGNMENT;
        let place = *end..end.saturating_add(len);
        if len == 0 || place.end > self.memory.len() {
            return Err(NvjpegError::Size { size });
        }
        *end = place.end.next_multiple_of(ALIGNMENT);
        Ok(place)
    }

    fn image(&self, place: &Range<usize>, width: u32) -> Image {
        let (mut channel, mut pitch) = ([std::ptr::null_mut(); CHANNELS_MAX], [0; CHANNELS_MAX]);
        // An address of the device, which this process never follows.
        channel[0] = std::ptr::without_provenance_mut(self.memory.address() as usize + place.start);
        pitch[0] = width as usize * CHANNELS;
        Image { channel, pitch }
    }
}

impl Engine {
    fn new(library: &Library, context: &Context, backend: c_int) -> Result<Engine, NvjpegError> {
        let _current = context.enter()?;
        let null = std::ptr::null_mut();
        let mut handle = null;
        let (device, host) = (Memory::<DeviceMemory>::new(context), Memory::<HostMemory>::new(context));
        let (mut of_device, mut of_host) = (device.allocator(), host.allocator());
        let mut create = |flags: c_uint| {
            let (of_device, of_host) = (&raw mut of_device, &raw mut of_host);
            // SAFETY: the allocators' memory lives until the handle is given back or never used again (`drop`). The
            // pointers are to allocators and a handle that live until the call returns, and the device's context is
            // current.
            let code = unsafe { (library.table.nvjpegCreateExV2)(backend, of_device, of_host, flags, &raw mut handle) };
            check("nvjpegCreateExV2", code)
        };
        create(table::NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION).or_else(|_| create(0))?;
        let (library, context) = (library.clone(), context.clone());
        // From now on it is given back whatever happens.
        let memory = (device, host);
        let mut engine = Engine { library, context, handle, state: null, header: null, memory, batch: 0 };
        let state = &raw mut engine.state;
        // SAFETY: the handle was made above, and the pointer is to a handle that lives until the call returns.
        let made = unsafe { (engine.library.table.nvjpegJpegStateCreate)(engine.handle, state) };
        check("nvjpegJpegStateCreate", made)?;
        let header = &raw mut engine.header;
        // SAFETY: as above.
        let made = unsafe { (engine.library.table.nvjpegJpegStreamCreate)(engine.handle, header) };
        check("nvjpegJpegStreamCreate", made)?;
        Ok(engine)
    }

    fn info(&self) -> Hardware {
        let (mut engines, mut cores) = (0, 0);
        if let Some(ask) = self.library.table.nvjpegGetHardwareDecoderInfo {
            // SAFETY: the handle lives until `self` is dropped, and the pointers are to numbers that live until the
            // call returns. A number that it does not set stays 0.
            let _ = unsafe { ask(self.handle, &raw mut engines, &raw mut cores) };
        }
        Hardware { engines, cores }
    }

    /// Whether it decodes such a file in a batch: the hardware knows baseline files of one scan, and not each
    /// subsampling.
    fn takes(&mut self, jpeg: &[u8]) -> bool {
        let (table, mut refuses) = (&self.library.table, 1);
        // SAFETY: both handles live until `self` is dropped. The bytes are borrowed for the call, which only reads
        // them, and keeps none: it parses the header alone.
        let parsed =
            unsafe { (table.nvjpegJpegStreamParseHeader)(self.handle, jpeg.as_ptr(), jpeg.len(), self.header) };
        // SAFETY: as above, and the pointer is to an int that lives until the call returns.
        let mut asked = || unsafe { (table.nvjpegDecodeBatchedSupported)(self.handle, self.header, &raw mut refuses) };
        parsed == 0 && asked() == 0 && refuses == 0
    }

    /// Rows and columns of the image, which has three components.
    fn size(&self, jpeg: &[u8]) -> Result<(u32, u32), NvjpegError> {
        let (mut components, mut subsampling) = (0, 0);
        let (mut widths, mut heights) = ([0; CHANNELS_MAX], [0; CHANNELS_MAX]);
        // SAFETY: the handle lives until `self` is dropped. The bytes are borrowed for the call, which only reads them.
        // The other pointers are to ints, four for the sides as the header asks, that live until it returns.
        let asked = unsafe {
            (self.library.table.nvjpegGetImageInfo)(
                self.handle,
                jpeg.as_ptr(),
                jpeg.len(),
                &raw mut components,
                &raw mut subsampling,
                widths.as_mut_ptr(),
                heights.as_mut_ptr(),
            )
        };
        check("nvjpegGetImageInfo", asked)?;
        if components != CHANNELS as c_int {
            return Err(NvjpegError::new("nvjpegGetImageInfo", table::NVJPEG_STATUS_JPEG_NOT_SUPPORTED));
        }
        // The first component is never the smaller one.
        let side = |side: c_int| u32::try_from(side).unwrap_or(0);
        Ok((side(heights[0]), side(widths[0])))
    }

    fn decode(&mut self, stream: &Stream, jpeg: &[u8], mut image: Image) -> Result<(), NvjpegError> {
        let _current = self.context.enter()?;
        // SAFETY: the handle, its state and the stream live. `size` had the library read the header of the same bytes,
        // which cannot change while they are borrowed, and the image is a place of that many rows and columns in memory
        // of the device (`place`). The bytes are borrowed until the stream is done: below.
        let code = unsafe {
            (self.library.table.nvjpegDecode)(
                self.handle,
                self.state,
                jpeg.as_ptr(),
                jpeg.len(),
                table::NVJPEG_OUTPUT_RGBI,
                &raw mut image,
                stream.raw(),
            )
        };
        self.settled(check("nvjpegDecode", code), stream)
    }

    fn decode_batch(&mut self, stream: &Stream, requests: &[(&[u8], Image)]) -> Result<(), NvjpegError> {
        let _current = self.context.enter()?;
        let count = requests.len();
        if self.batch != count {
            let images = c_int::try_from(count).unwrap_or(c_int::MAX);
            // SAFETY: the handle and its state live.
            let ready = unsafe {
                (self.library.table.nvjpegDecodeBatchedInitialize)(
                    self.handle,
                    self.state,
                    images,
                    THREADS,
                    table::NVJPEG_OUTPUT_RGBI,
                )
            };
            check("nvjpegDecodeBatchedInitialize", ready)?;
            self.batch = count;
        }
        let jpegs: Vec<*const u8> = requests.iter().map(|(jpeg, _)| jpeg.as_ptr()).collect();
        let lengths: Vec<usize> = requests.iter().map(|(jpeg, _)| jpeg.len()).collect();
        let mut images: Vec<Image> = requests.iter().map(|&(_, image)| image).collect();
        // SAFETY: as in `decode`, for each image; the three lists have as many entries as the batch that the state is
        // ready for, and live until the call returns.
        let code = unsafe {
            (self.library.table.nvjpegDecodeBatched)(
                self.handle,
                self.state,
                jpegs.as_ptr(),
                lengths.as_ptr(),
                images.as_mut_ptr(),
                stream.raw(),
            )
        };
        self.settled(check("nvjpegDecodeBatched", code), stream).inspect_err(|_| {
            // A batch that failed leaves a state that must be made ready again.
            self.batch = 0;
        })
    }

    /// Waits until the stream is done, whatever a call that put work into it said. It may have put some of it there:
    /// then that is over too, or the context is lost, in which nothing runs any more.
    fn settled(&self, called: Result<(), NvjpegError>, stream: &Stream) -> Result<(), NvjpegError> {
        stream.synchronize()?;
        self.memory.1.settled();
        called
    }
}

fn check(call: &'static str, code: table::Status) -> Result<(), NvjpegError> {
    if code == 0 { Ok(()) } else { Err(NvjpegError::new(call, code)) }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        if !self.header.is_null() {
            // SAFETY: `new` made it, and it is ended once.
            let _ = unsafe { (self.library.table.nvjpegJpegStreamDestroy)(self.header) };
        }
        if !self.state.is_null() {
            // SAFETY: `new` made it, and it is ended once. No work of it is in a stream: each call waits for that.
            let _ = unsafe { (self.library.table.nvjpegJpegStateDestroy)(self.state) };
        }
        // SAFETY: as above; its state is gone.
        let _ = unsafe { (self.library.table.nvjpegDestroy)(self.handle) };
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (library, room) = (&self.engine.library, self.room());
        f.debug_struct("Decoder").field("library", &library).field("room", &room).finish_non_exhaustive()
    }
}
