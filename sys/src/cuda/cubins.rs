//! Machine code of the kernels for common devices, so that the driver has nothing to compile.

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

/// Bytes of one after decompression, at most.
const BYTES_MAX: usize = 4 << 20;

/// Compute capability and machine code of each, compressed by zlib; made by `sys/kernels/build.py`.
const CUBINS: [((u32, u32), &[u8]); 4] = [
    ((8, 0), include_bytes!("../../kernels/cubins/sm_80.z")),
    ((9, 0), include_bytes!("../../kernels/cubins/sm_90.z")),
    ((10, 0), include_bytes!("../../kernels/cubins/sm_100.z")),
    ((12, 0), include_bytes!("../../kernels/cubins/sm_120.z")),
];

/// The machine code for devices of this compute capability, an ELF file. It runs on devices of the same major number
/// whose minor number is not lower (CUDA C++ Programming Guide, "Binary Compatibility").
pub(super) fn of((major, minor): (u32, u32)) -> Option<Vec<u8>> {
    let runs = |&&(made, _): &&((u32, u32), &[u8])| made.0 == major && made.1 <= minor;
    let (_, compressed) = CUBINS.iter().rfind(runs)?;
    decompress_to_vec_zlib_with_limit(compressed, BYTES_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Kernel;

    #[test]
    fn each_has_all_kernels() {
        for compute in CUBINS.map(|(compute, _)| compute) {
            let code = of(compute).unwrap();
            // ELF of 64 bits, for NVIDIA's devices.
            assert_eq!((&code[..5], &code[18..20]), (&b"\x7fELF\x02"[..], &[190, 0][..]), "{compute:?}");
            for kernel in Kernel::ALL {
                let section = format!(".text.{}\0", kernel.name().to_str().unwrap());
                assert!(code.windows(section.len()).any(|part| part == section.as_bytes()), "{compute:?} {section}");
            }
        }
    }

    #[test]
    fn a_device_gets_code_of_its_own_major_number() {
        let first = |compute| of(compute).map(|code| code.len());
        for (compute, made) in [((8, 6), (8, 0)), ((8, 9), (8, 0)), ((10, 3), (10, 0)), ((12, 1), (12, 0))] {
            assert_eq!(first(compute), first(made));
            assert!(first(compute).is_some());
        }
        assert_eq!([(7, 0), (7, 5), (11, 0), (13, 0)].map(first), [None; 4]);
    }
}
