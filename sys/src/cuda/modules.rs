//! Kernels as driver modules, loaded when a kernel is first used.
//!
//! Common devices have machine code, one module with all kernels. For the others each kernel is a module of PTX, which
//! the driver compiles for its device, and caches on disk if it can. Compiling all kernels at once takes seconds, and
//! most loaders need only the few that move bytes.

use super::context::Context;
use super::cubins;
use super::error::{CudaError, check};
use super::table::Handle;
use std::ffi::{CStr, CString};
use std::sync::{Arc, OnceLock};

/// PTX for compute capability 7.0, which every driver since CUDA 12.0 compiles for its device.
const PTX: &str = include_str!("../../kernels/kernels.ptx");

/// The start of a kernel in the PTX.
const ENTRY: &str = ".visible .entry ";

macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident = $name:literal,)*) => {
        /// A kernel of `sys/kernels`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Kernel {
            $($(#[$doc])* $kernel,)*
        }

        impl Kernel {
            /// All of them, in the order of their discriminants.
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
    /// Copies pieces to their places.
    Gather = c"ur_gather",
    /// Fills memory with an element.
    Fill = c"ur_fill",
    /// Pads rows to one length.
    Pad = c"ur_pad",
    /// Makes ids and labels from tokens of 2 bytes.
    TokensU16 = c"ur_tokens_u16",
    /// Makes ids and labels from tokens of 4 bytes.
    TokensU32 = c"ur_tokens_u32",
    /// Makes a tensor of unsigned bytes from images.
    ImagesU8 = c"ur_images_u8",
    /// Makes a single-precision tensor from images.
    ImagesF32 = c"ur_images_f32",
    /// Makes a half-precision tensor from images.
    ImagesF16 = c"ur_images_f16",
    /// Makes a bfloat16 tensor from images.
    ImagesBF16 = c"ur_images_bf16",
    /// Computes for a while.
    Burn = c"ur_burn",
    /// Resamples images along one axis.
    Resample = c"ur_resample",
}

/// The kernels of one device that were used so far.
pub(super) struct Modules {
    context: Context,
    /// The machine code for the device; `None` if there is none, or if the driver does not take it.
    cubin: OnceLock<Option<Arc<Module>>>,
    loaded: [OnceLock<Function>; Kernel::ALL.len()],
}

/// A loaded module.
struct Module {
    context: Context,
    raw: Handle,
}

/// A loaded kernel.
struct Function {
    /// Keeps it loaded.
    _module: Arc<Module>,
    raw: Handle,
    /// Types of the parameters in the PTX, which machine code has too: "u64", "u32" or "f32".
    parameters: Vec<&'static str>,
}

// SAFETY: a module is a handle that any thread may pass to the driver, which is thread-safe. Nothing here changes after
// construction.
unsafe impl Send for Module {}
// SAFETY: as for Send.
unsafe impl Sync for Module {}
// SAFETY: as for a module.
unsafe impl Send for Function {}
// SAFETY: as for Send.
unsafe impl Sync for Function {}

impl Modules {
    pub(super) fn new(context: &Context) -> Modules {
        Modules { context: context.clone(), cubin: OnceLock::new(), loaded: Default::default() }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// The function, which lives as long as `self`, and the types of its parameters as the PTX names them.
    ///
    /// # Errors
    /// If the driver rejects the PTX; whatever else it reports.
    pub(super) fn function(&self, kernel: Kernel) -> Result<(Handle, &[&'static str]), CudaError> {
        let slot = &self.loaded[kernel as usize];
        let function = match slot.get() {
            Some(function) => function,
            None => {
                let function = self.load(kernel)?;
                // If another thread was faster, its function is used, and this one is dropped.
                slot.get_or_init(|| function)
            }
        };
        Ok((function.raw, &function.parameters))
    }

    fn load(&self, kernel: Kernel) -> Result<Function, CudaError> {
        if let Some(module) = self.cubin.get_or_init(|| self.cubin()) {
            return Function::of(module, kernel);
        }
        let image = image(kernel).ok_or(CudaError::invalid("cuModuleLoadData"))?;
        Function::of(&Arc::new(Module::load(&self.context, image.as_bytes_with_nul())?), kernel)
    }

    /// The machine code for the device. A driver that is older than it, or stranger, refuses it, and gets the PTX; what
    /// else is wrong, the PTX will show.
    fn cubin(&self) -> Option<Arc<Module>> {
        let code = cubins::of(self.context.info().compute)?;
        Module::load(&self.context, &code).ok().map(Arc::new)
    }
}

impl Module {
    /// Loads an image that [`image`] or [`cubins::of`] made.
    fn load(context: &Context, image: &[u8]) -> Result<Module, CudaError> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is PTX that ends with a zero, or an ELF file whose tables contain its length, as it was
        // built (sys/tests/kernels.rs compares it with the hash of that), and the pointer is to a handle: both live
        // until the call returns. The context is current.
        let loaded = unsafe { (context.table().cuModuleLoadData)(&raw mut raw, image.as_ptr().cast()) };
        check("cuModuleLoadData", loaded)?;
        Ok(Module { context: context.clone(), raw })
    }
}

impl Function {
    fn of(module: &Arc<Module>, kernel: Kernel) -> Result<Function, CudaError> {
        let parameters = ptx_parameters(kernel).ok_or(CudaError::invalid("cuModuleGetFunction"))?;
        let context = &module.context;
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that lives until the call returns, the module is loaded, and the name ends
        // with a zero.
        let found = unsafe { (context.table().cuModuleGetFunction)(&raw mut raw, module.raw, kernel.name().as_ptr()) };
        check("cuModuleGetFunction", found)?;
        // A driver that loads lazily would else do it at the first launch: within the first batch.
        if let Some(load) = context.table().cuFuncLoad {
            // SAFETY: the function is one of the module, which is loaded, and the context is current.
            check("cuFuncLoad", unsafe { load(raw) })?;
        }
        Ok(Function { _module: Arc::clone(module), raw, parameters })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: `load` loaded it, and it is unloaded once. No code can launch its functions any more: each keeps it.
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
    // What follows its last brace is the comment of the next kernel.
    let body = rest[..len].rsplit_once('}')?.0;
    CString::new(header.chain([body, "}"]).collect::<Vec<_>>().join("\n")).ok()
}

/// The types of a kernel's parameters, from the PTX.
pub(super) fn ptx_parameters(kernel: Kernel) -> Option<Vec<&'static str>> {
    let start = PTX.find(&format!("{ENTRY}{}(", kernel.name().to_str().ok()?))?;
    let (_, list) = PTX[start..].split_once('(')?;
    let (list, _) = list.split_once(')')?;
    // Each is `.param .u64 NAME`.
    list.split(',').map(|parameter| parameter.trim().strip_prefix(".param .")?.split_whitespace().next()).collect()
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
            // No kernel uses anything that the file declares outside it.
            let declared = PTX.lines().filter(|line| line.starts_with(".global"));
            let declared = declared.filter_map(|line| line.split([' ', '[', ';']).find(|word| word.starts_with('_')));
            assert!(declared.into_iter().all(|global| !image.contains(global)), "{name}");
        }
        assert_eq!(PTX.matches(ENTRY).count(), Kernel::ALL.len(), "a kernel that cannot be launched");
    }

    #[test]
    fn parameters_are_those_of_the_ptx() {
        assert_eq!(ptx_parameters(Kernel::Burn).unwrap(), ["u64", "u64", "u32"]);
        let images = ptx_parameters(Kernel::ImagesU8).unwrap();
        assert_eq!((images[6], &images[7..]), ("u32", &["f32"; 12][..]));
        for kernel in Kernel::ALL {
            let known = |kind: &&str| ["u64", "u32", "f32"].contains(kind);
            assert!(ptx_parameters(kernel).unwrap().iter().all(known), "{kernel:?}");
        }
    }
}
