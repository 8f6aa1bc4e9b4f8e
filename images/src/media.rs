//! Sound and film by their first bytes. Nothing here decodes them: they are named, so that they are not taken for
//! bytes without a meaning, or for broken images.
//!
//! Sources: RFC 9639 (FLAC), RFC 3533 (Ogg), ISO 11172-3, 2.4.1.3 (MP3), ISO 14496-12 (MP4), RFC 8794 (Matroska).

use std::fmt;

/// A kind of file of sound or film.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Media {
    /// Sound, by the name of its format: "WAV", "Ogg Opus".
    Audio(&'static str),
    /// Film, with or without sound, likewise: "MP4", "WebM".
    Video(&'static str),
}

/// Endings of names: those of each row are the same container.
const ENDINGS: [&[&str]; 7] = [
    &["wav"],
    &["flac"],
    &["mp3"],
    &["ogg", "oga", "opus", "ogv"],
    &["mp4", "m4a", "m4v", "mov"],
    &["webm", "mkv", "mka"],
    &["avi"],
];

impl Media {
    /// What a file is that starts with these bytes: 4096 are enough.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Media> {
        use Media::{Audio, Video};
        Some(match bytes {
            [b'R', b'I' | b'F', b'F' | b'6', b'F' | b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Audio("WAV"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => Video("AVI"),
            [b'f', b'L', b'a', b'C', ..] => Audio("FLAC"),
            [b'I', b'D', b'3', 2..=4, ..] => Audio("MP3"),
            [b'O', b'g', b'g', b'S', 0, ..] => ogg(bytes),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => return mp4(brand.first_chunk()?),
            [0x1a, 0x45, 0xdf, 0xa3, rest @ ..] => {
                // The type of the document is among the first elements.
                let is_webm = rest[..rest.len().min(64)].windows(4).any(|word| word == b"webm");
                Video(if is_webm { "WebM" } else { "Matroska" })
            }
            _ if [0, 188, 376].iter().all(|&packet| bytes.get(packet) == Some(&0x47)) => Video("MPEG-TS"),
            _ if is_mp3(bytes) => Audio("MP3"),
            _ => return None,
        })
    }

    /// Whether a file with this ending may be one of these. `None` for an ending that is not of sound or film.
    #[must_use]
    pub fn fits(found: Option<Media>, ending: &str) -> Option<bool> {
        let of = |ending: &str| ENDINGS.iter().position(|endings| endings.contains(&ending));
        let called = of(&ending.to_ascii_lowercase())?;
        Some(found.and_then(|found| of(found.ending())) == Some(called))
    }

    /// An ending that files of the format have.
    fn ending(self) -> &'static str {
        match self {
            Media::Audio("WAV") => "wav",
            Media::Audio("FLAC") => "flac",
            Media::Audio("MP3") => "mp3",
            Media::Audio("M4A") | Media::Video("MP4" | "MOV") => "mp4",
            Media::Video("WebM" | "Matroska") => "mkv",
            Media::Video("AVI") => "avi",
            Media::Video("MPEG-TS") => "ts",
            _ => "ogg",
        }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Media::Audio(name) => write!(f, "{name} audio"),
            Media::Video(name) => write!(f, "{name} video"),
        }
    }
}

/// By the first packet, which comes after the table of the page's segments.
fn ogg(bytes: &[u8]) -> Media {
    let packet = bytes.get(26).and_then(|&segments| bytes.get(27 + usize::from(segments)..)).unwrap_or_default();
    match packet {
        [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', ..] => Media::Audio("Ogg Opus"),
        [1, b'v', b'o', b'r', b'b', b'i', b's', ..] => Media::Audio("Ogg Vorbis"),
        [0x80, b't', b'h', b'e', b'o', b'r', b'a', ..] => Media::Video("Ogg Theora"),
        _ => Media::Audio("Ogg"),
    }
}

/// By the brand. Images may be in this container too.
fn mp4(brand: &[u8; 4]) -> Option<Media> {
    match brand {
        b"M4A " | b"M4B " | b"F4A " => Some(Media::Audio("M4A")),
        b"qt  " => Some(Media::Video("MOV")),
        b"avif" | b"avis" | b"heic" | b"heix" | b"hevc" | b"mif1" | b"msf1" | b"jxl " | b"jp2 " => None,
        _ => Some(Media::Video("MP4")),
    }
}

/// Whether a frame begins here, and another one after it: the mark of a frame is too short to be sure.
fn is_mp3(bytes: &[u8]) -> bool {
    mp3_frame(bytes).and_then(|len| bytes.get(len..)).is_some_and(|next| mp3_frame(next).is_some())
}

/// The length of a frame of MP3 by its header.
fn mp3_frame(bytes: &[u8]) -> Option<usize> {
    /// Bits a second, in thousands, of version 1 and of the others.
    const RATES: [[usize; 14]; 2] = [
        [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
        [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
    ];
    /// Samples a second, of version 1.
    const SAMPLES: [usize; 3] = [44_100, 48_000, 32_000];
    let &[0xff, version, rates, ..] = bytes else { return None };
    // Eleven bits are set, and the layer is III.
    if version & 0xe6 != 0xe2 {
        return None;
    }
    let (table, frame, divisor) = match version >> 3 & 3 {
        3 => (0, 144_000, 1),
        2 => (1, 72_000, 2),
        0 => (1, 72_000, 4),
        _ => return None,
    };
    let rate = RATES[table].get(usize::from(rates >> 4).checked_sub(1)?)?;
    let samples = SAMPLES.get(usize::from(rates >> 2 & 3))? / divisor;
    Some(frame * rate / samples + usize::from(rates >> 1 & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_known_by_their_first_bytes() {
        let ogg = |packet: &[u8]| [&b"OggS\0\x02"[..], &[0; 20], &[1, 30], packet].concat();
        let mkv = |kind: &[u8]| [&[0x1a, 0x45, 0xdf, 0xa3, 0x93, 0x42, 0x82][..], kind].concat();
        let frame = |head: [u8; 4], len: usize| [&head[..], &vec![0; len - 4], &head].concat();
        let packets: Vec<u8> = (0..400).map(|at| if at % 188 == 0 { 0x47 } else { 0 }).collect();
        for (bytes, name) in [
            (b"RIFF\x24\0\0\0WAVEfmt ".to_vec(), "WAV audio"),
            (b"RF64\xff\xff\xff\xffWAVEds64".to_vec(), "WAV audio"),
            (b"RIFF\x24\0\0\0AVI LIST".to_vec(), "AVI video"),
            (b"fLaC\0\0\0\x22".to_vec(), "FLAC audio"),
            (b"ID3\x04\0".to_vec(), "MP3 audio"),
            (frame([0xff, 0xfb, 0x90, 0x64], 417), "MP3 audio"),
            (frame([0xff, 0xf3, 0x82, 0x64], 209), "MP3 audio"),
            (ogg(b"OpusHead\x01"), "Ogg Opus audio"),
            (ogg(b"\x01vorbis"), "Ogg Vorbis audio"),
            (ogg(b"\x80theora"), "Ogg Theora video"),
            (b"OggS\0".to_vec(), "Ogg audio"),
            (b"\0\0\0\x20ftypM4A \0\0".to_vec(), "M4A audio"),
            (b"\0\0\0\x20ftypisom\0\0".to_vec(), "MP4 video"),
            (b"\0\0\0\x14ftypqt  \0\0".to_vec(), "MOV video"),
            (mkv(b"\x88matroska"), "Matroska video"),
            (mkv(b"\x84webm"), "WebM video"),
            (packets, "MPEG-TS video"),
        ] {
            assert_eq!(Media::of(&bytes).map(|found| found.to_string()).as_deref(), Some(name), "{bytes:x?}");
        }
        for bytes in [
            &b""[..],
            b"RIFF\x24\0\0\0WEBPVP8 ",
            b"\0\0\0\x20ftypavif",
            b"\0\0\0\x20ftyp",
            &[0xff; 4096],
            &[0xff, 0xfb, 0x90, 0x64],
            &[0x47; 300],
            b"OggX",
        ] {
            assert_eq!(Media::of(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn names_fit_their_container() {
        let fits = |bytes: &[u8], ending| Media::fits(Media::of(bytes), ending);
        assert_eq!(
            (fits(b"fLaC", "flac"), fits(b"fLaC", "FLAC"), fits(b"fLaC", "wav")),
            (Some(true), Some(true), Some(false))
        );
        assert_eq!((fits(b"\0\0\0\x20ftypisom", "m4a"), fits(b"text", "mp3")), (Some(true), Some(false)));
        assert_eq!((fits(b"fLaC", "bin"), fits(b"", "")), (None, None));
    }
}
