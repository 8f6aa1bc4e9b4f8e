//! Kernels as the driver has them: each is loaded by itself when it is first wanted.
//!
//! The driver compiles what it loads for its device, and keeps the result on disk where it can. All kernels at once
//! would take it some seconds, of which a loader mostly needs the few that bring bytes to their places.

use super::context::Context;
use super::error::{CudaError, check};
use super::table::Handle;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// PTX for compute capability 7.0, which every driver from CUDA 12.0 on compiles for its device.
const PTX: &str = include_str!("../../kernels/kernels.ptx");

/// How a kernel begins in the PTX.
const ENTRY: &str = ".visible .entry ";

macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident = $name:literal,)*) => {
        /// A kernel of `sys/kernels`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kernel {
            $($(#[$doc])* $kernel,)*
        }

        impl Kernel {
            /// All of them, in the order of `as usize`.
            pub const ALL: [Kernel; [$($name),*].len()] = [$(Kernel::$kernel),*];

            /// Its name in the module.
            pub fn name(self) -> &'static CStr {
                match self {
                    $(Kernel::$kernel => $name,)*
                }
            }
        }
    };
}

kernels! {
    /// Pieces come to their places.
    Gather = c"ur_gather",
    /// Memory is filled with an element.
    Fill = c"ur_fill",
    /// Rows come to one length.
    Pad = c"ur_pad",
    /// Tokens of 2 bytes become ids and labels.
    TokensU16 = c"ur_tokens_u16",
    /// Tokens of 4 bytes become ids and labels.
    TokensU32 = c"ur_tokens_u32",
    /// Images become unsigned bytes.
    ImagesU8 = c"ur_images_u8",
    /// Images become single precision.
    ImagesF32 = c"ur_images_f32",
    /// Images become half precision.
    ImagesF16 = c"ur_images_f16",
    /// Images become the upper halves of single precision.
    ImagesBF16 = c"ur_images_bf16",
    /// Arithmetic that takes its time.
    Burn = c"ur_burn",
}

/// The kernels that were wanted so far, of one device.
pub(super) struct Modules {
    context: Context,
    loaded: [OnceLock<Module>; Kernel::ALL.len()],
}

/// One kernel, loaded.
struct Module {
    context: Context,
    raw: Handle,
    function: Handle,
}

// SAFETY: a module and its function are handles that any thread may pass to the driver, which is thread-safe; nothing
// here is changed after it was made.
unsafe impl Send for Module {}
// SAFETY: as for Send.
unsafe impl Sync for Module {}

impl Modules {
    pub(super) fn new(context: &Context) -> Modules {
        Modules { context: context.clone(), loaded: Default::default() }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// The function, which lives as long as `self`.
    ///
    /// # Errors
    /// Where the driver does not take the PTX; what else it says.
    pub(super) fn function(&self, kernel: Kernel) -> Result<Handle, CudaError> {
        let slot = &self.loaded[kernel as usize];
        if let Some(module) = slot.get() {
            return Ok(module.function);
        }
        let module = Module::load(&self.context, kernel)?;
        // Where another thread was faster, its module is taken, and this one is dropped.
        Ok(slot.get_or_init(|| module).function)
    }
}

impl Module {
    fn load(context: &Context, kernel: Kernel) -> Result<Module, CudaError> {
        let image = image(kernel).ok_or(CudaError::invalid("cuModuleLoadData"))?;
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is PTX that ends with a zero and lives until the call returns; the pointer is to a handle
        // that does; the context is current.
        let loaded = unsafe { (context.table().cuModuleLoadData)(&raw mut raw, image.as_ptr().cast()) };
        check("cuModuleLoadData", loaded)?;
        // From here on it is unloaded whatever happens.
        let mut module = Module { context: context.clone(), raw, function: std::ptr::null_mut() };
        let function = &raw mut module.function;
        // SAFETY: the pointer is to a handle that lives until the call returns; the module was loaded; the name ends
        // with a zero.
        let found = unsafe { (context.table().cuModuleGetFunction)(function, raw, kernel.name().as_ptr()) };
        check("cuModuleGetFunction", found)?;
        Ok(module)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: loaded by `load` and unloaded once, when nobody launches its function any more.
        let _ = unsafe { (self.context.table().cuModuleUnload)(self.raw) };
    }
}

/// The PTX of one kernel, as a module of its own.
fn image(kernel: Kernel) -> Option<CString> {
    let name = kernel.name().to_str().ok()?;
    let header =
        PTX.lines().filter(|line| [".version", ".target", ".address_size"].iter().any(|&d| line.starts_with(d)));
    let start = PTX.find(&format!("{ENTRY}{name}("))?;
    let rest = &PTX[start..];
    let len = rest[ENTRY.len()..].find(ENTRY).map_or(rest.len(), |next| next + ENTRY.len());
    // What stands before the next one is its comment.
    let body = rest[..len].rsplit_once('}')?.0;
    CString::new(header.chain([body, "}"]).collect::<Vec<_>>().join("\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_a_module_of_its_own() {
        for kernel in Kernel::ALL {
            let image = image(kernel).unwrap().into_string().unwrap();
            let name = kernel.name().to_str().unwrap();
            assert!(image.starts_with(".version 8.0\n.target sm_70\n.address_size 64\n"), "{name}");
            assert_eq!(image.matches(ENTRY).count(), 1, "{name}");
            assert!(image.contains(&format!("{ENTRY}{name}(")) && image.trim_end().ends_with('}'), "{name}");
            // Nothing of what the whole file declares beside the kernels is used by one.
            let declared = PTX.lines().filter(|line| line.starts_with(".global"));
            let declared = declared.filter_map(|line| line.split([' ', '[', ';']).find(|word| word.starts_with('_')));
            assert!(declared.into_iter().all(|global| !image.contains(global)), "{name}");
        }
        assert_eq!(PTX.matches(ENTRY).count(), Kernel::ALL.len(), "a kernel that nobody can launch");
    }
}
