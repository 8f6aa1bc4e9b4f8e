//! Hashes by their names in Python's `hashlib` and `xxhash`, which mosaicml-streaming writes.

use super::Hasher;
use sha2::digest::{Digest, Update};
use std::hash::Hasher as _;

/// The hash of this name, if it is supported.
pub(super) fn hasher(name: &str) -> Option<Box<dyn Hasher>> {
    Some(match name {
        "blake2b" => digest::<blake2::Blake2b512>(),
        "blake2s" => digest::<blake2::Blake2s256>(),
        "md5" => digest::<md5::Md5>(),
        "sha1" => digest::<sha1::Sha1>(),
        "sha224" => digest::<sha2::Sha224>(),
        "sha256" => digest::<sha2::Sha256>(),
        "sha384" => digest::<sha2::Sha384>(),
        "sha512" => digest::<sha2::Sha512>(),
        "sha3_224" => digest::<sha3::Sha3_224>(),
        "sha3_256" => digest::<sha3::Sha3_256>(),
        "sha3_384" => digest::<sha3::Sha3_384>(),
        "sha3_512" => digest::<sha3::Sha3_512>(),
        "xxh32" => Box::new(Xxh32(twox_hash::XxHash32::with_seed(0))),
        "xxh64" => Box::new(Xxh64(twox_hash::XxHash64::with_seed(0))),
        "xxh3_64" => Box::new(Xxh64(twox_hash::XxHash3_64::new())),
        "xxh3_128" | "xxh128" => Box::new(Xxh128(twox_hash::XxHash3_128::new())),
        _ => return None,
    })
}

fn digest<D: Digest + Update + 'static>() -> Box<dyn Hasher> {
    Box::new(Digested(D::new()))
}

struct Digested<D>(D);

impl<D: Digest + Update> Hasher for Digested<D> {
    fn update(&mut self, bytes: &[u8]) {
        Update::update(&mut self.0, bytes);
    }

    fn finish(self: Box<Self>) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

struct Xxh32(twox_hash::XxHash32);

impl Hasher for Xxh32 {
    fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(self: Box<Self>) -> String {
        format!("{:08x}", self.0.finish_32())
    }
}

/// Both 64-bit hashes.
struct Xxh64<H>(H);

impl<H: std::hash::Hasher> Hasher for Xxh64<H> {
    fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(self: Box<Self>) -> String {
        format!("{:016x}", self.0.finish())
    }
}

struct Xxh128(twox_hash::XxHash3_128);

impl Hasher for Xxh128 {
    fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(self: Box<Self>) -> String {
        format!("{:032x}", self.0.finish_128())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_bytes;

    /// Values from Python 3.11's hashlib and xxhash 3.
    #[test]
    fn hashes_are_those_of_python() {
        for (name, expected) in [
            ("md5", "e6899eaaf06fd702f3ed3f988eb19362"),
            ("sha1", "ac2a264c8ec1f4232a40854e8239bc3a697ab1d2"),
            ("sha224", "591b51555cc8c83f6951d9ec73d834d6d17865fecdb543605471a562"),
            ("sha256", "f3a25aa93aa2fbba28d79260535bbd6a5eb0fc1c24a8b0f04e12b484c1dfe363"),
            ("sha3_224", "1e79576532395de20d67911b1f6b482bbcaaed8e6863d1e58082916e"),
            ("sha3_256", "c043b2b15d405c9f4cd92fdaef420eba6201d328fb34ec0e2c16e4981b9e4b39"),
            ("blake2s", "b928a17862e211e99759ba8819280803a914cd3dee7c5d711a3b5185aa96a7b3"),
            ("xxh32", "cdb946b1"),
            ("xxh64", "8e03c838c596036f"),
            ("xxh3_64", "4066a57f4496584a"),
            ("xxh3_128", "a9ee10cbf43517e44066a57f4496584a"),
            ("xxh128", "a9ee10cbf43517e44066a57f4496584a"),
        ] {
            assert_eq!(of_bytes(name).as_deref(), Some(expected), "{name}");
        }
        for (name, expected) in [
            ("sha384", "6bee04118003cf5630ccb22cdb53f78dc079231c7d09209955dfc34234cbab03"),
            ("sha512", "f1721f49518ee462a3d81def26d81037cd474b4254b85ad7c8f1509594d0177b"),
            ("sha3_384", "1719287be5dd0ce14ac51bfdc22f8e1137a6951666b2d946cd0d031bb68bc317"),
            ("sha3_512", "ad3a11a3430f0fac234a6c15bff0cb609b3d6fde0eac5873893e2775d15cf47d"),
            ("blake2b", "323e97a7a859ee63c9013debb0ca995811e73117a2f574723416e596ebc184e3"),
        ] {
            let found = of_bytes(name).unwrap();
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }
}
