//! A page of a listing, from the XML of S3, GCS and Azure. Keys come out as the bytes they are.

use crate::clock;
use crate::url::decode;
use crate::version::Versions;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use uringload_core::store::Object;
use uringload_core::store::{Class, Failure};

/// A page as the server gave it.
#[derive(Debug, Default)]
pub struct RawPage {
    pub objects: Vec<Object>,
    /// With a delimiter: what keys begin with, up to it.
    pub prefixes: Vec<Vec<u8>>,
    /// Where the next page begins; nothing on the last.
    pub next: Option<String>,
    /// Keys of objects left out: of 0 bytes with a `/` at the end, or folders of Azure.
    pub markers: Vec<Vec<u8>>,
    pub has_weak_etag: bool,
}

/// Deepest nesting of elements; listings have 4.
const DEPTH_MAX: usize = 16;

/// Reads a page.
///
/// # Errors
///
/// [`Class::Corrupt`] if it is cut off or no listing; the text does not name the page.
pub fn parse(xml: &[u8]) -> Result<RawPage, Failure> {
    let mut reader = Reader::from_reader(xml);
    let mut walk = Walk::default();
    loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => walk.start(&element)?,
            Ok(Event::Empty(element)) => {
                walk.start(&element)?;
                walk.end()?;
            }
            Ok(Event::Text(text)) => walk.text.push_str(&text.decode().map_err(broken)?),
            Ok(Event::CData(text)) => walk.text.push_str(&text.decode().map_err(broken)?),
            Ok(Event::GeneralRef(name)) => match name.resolve_char_ref().map_err(broken)? {
                Some(letter) => walk.text.push(letter),
                None => match name.decode().map_err(broken)?.as_ref() {
                    "amp" => walk.text.push('&'),
                    "lt" => walk.text.push('<'),
                    "gt" => walk.text.push('>'),
                    "quot" => walk.text.push('"'),
                    "apos" => walk.text.push('\''),
                    _ => return Err(corrupt("it has a letter of an unknown name")),
                },
            },
            Ok(Event::End(_)) => walk.end()?,
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(error) => return Err(broken(error)),
        }
    }
    walk.finish()
}

#[derive(Default)]
struct Walk {
    open: Vec<String>,
    text: String,
    is_listing: bool,
    is_truncated: bool,
    /// Names are encoded as in a URL, all of them or this one.
    are_encoded: bool,
    is_encoded: bool,
    found: Found,
    objects: Vec<Found>,
    prefixes: Vec<String>,
    next: Option<String>,
}

#[derive(Default)]
struct Found {
    key: Option<Name>,
    size: Option<u64>,
    versions: Versions,
    is_folder: bool,
}

struct Name {
    written: String,
    is_encoded: bool,
}

impl Walk {
    fn start(&mut self, element: &BytesStart) -> Result<(), Failure> {
        if self.open.len() >= DEPTH_MAX {
            return Err(corrupt("its elements are nested too deep"));
        }
        let name = String::from_utf8_lossy(element.local_name().as_ref()).into_owned();
        if self.open.is_empty() {
            self.is_listing |= ["ListBucketResult", "EnumerationResults"].contains(&name.as_str());
        }
        self.is_encoded =
            element.try_get_attribute("Encoded").is_ok_and(|value| value.is_some_and(|value| &*value.value == b"true"));
        if ["Contents", "Blob"].contains(&name.as_str()) {
            self.found = Found::default();
        }
        self.open.push(name);
        self.text.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(name) = self.open.pop() else { return Ok(()) };
        let text = std::mem::take(&mut self.text);
        let parent = self.open.last().map_or("", String::as_str);
        match (parent, name.as_str()) {
            ("Contents", "Key") | ("Blob", "Name") => {
                self.found.key = Some(Name { written: text, is_encoded: self.is_encoded });
            }
            ("Contents", "Size") | ("Properties", "Content-Length") => {
                let size = text.trim().parse().map_err(|_| corrupt("it has a size that is no number"))?;
                self.found.size = Some(size);
            }
            ("Contents", "ETag") | ("Properties", "Etag") => self.found.versions.take_etag(&text),
            ("Contents", "Generation") => self.found.versions.take_generation(&text),
            ("Contents", "LastModified") => self.found.versions.modified = clock::parse_iso(text.trim()),
            ("Properties", "Last-Modified") => self.found.versions.modified = clock::parse_http(text.trim()),
            ("Properties", "ResourceType") => self.found.is_folder = text.trim() == "directory",
            ("CommonPrefixes", "Prefix") | ("BlobPrefix", "Name") => self.prefixes.push(text),
            ("ListBucketResult", "IsTruncated") => self.is_truncated = text.trim() == "true",
            ("ListBucketResult", "NextContinuationToken") | ("EnumerationResults", "NextMarker") => {
                self.next = (!text.is_empty()).then_some(text);
            }
            ("ListBucketResult", "EncodingType") => self.are_encoded = text.trim() == "url",
            (_, "Contents" | "Blob") => self.objects.push(std::mem::take(&mut self.found)),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<RawPage, Failure> {
        if !self.is_listing {
            return Err(corrupt("it is no listing"));
        }
        if !self.open.is_empty() {
            return Err(corrupt("its XML is cut off"));
        }
        if self.is_truncated && self.next.is_none() {
            return Err(corrupt("it says that there is more, and not where"));
        }
        let are_encoded = self.are_encoded;
        let mut page = RawPage { next: self.next, ..RawPage::default() };
        for found in self.objects {
            let (Some(name), Some(size)) = (found.key, found.size) else {
                return Err(corrupt("it has an object without a name or a size"));
            };
            let key = match (are_encoded, name.is_encoded) {
                (true, _) => decode(name.written.as_bytes(), true),
                (false, true) => decode(name.written.as_bytes(), false),
                (false, false) => name.written.into_bytes(),
            };
            if found.is_folder || size == 0 && key.ends_with(b"/") {
                page.markers.push(key);
                continue;
            }
            page.has_weak_etag |= found.versions.has_weak_etag;
            page.objects.push(Object { key, size, version: found.versions.best(Some(size)) });
        }
        let plain = |name: String| if are_encoded { decode(name.as_bytes(), true) } else { name.into_bytes() };
        page.prefixes = self.prefixes.into_iter().map(plain).collect();
        Ok(page)
    }
}

/// The text of the first element `name` of an answer, whatever is around it.
pub fn element_of(xml: &str, name: &str) -> Option<String> {
    let mut reader = Reader::from_str(xml);
    let mut is_in = false;
    let mut text = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => is_in = element.local_name().as_ref() == name.as_bytes(),
            Event::Text(part) if is_in => text.push_str(&part.decode().ok()?),
            Event::GeneralRef(letter) if is_in => match letter.resolve_char_ref().ok()? {
                Some(letter) => text.push(letter),
                None => text.push_str(quick_xml::escape::resolve_predefined_entity(&letter.decode().ok()?)?),
            },
            Event::End(_) if is_in => return Some(text),
            Event::Eof => return None,
            _ => {}
        }
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    corrupt("its XML is broken").with_source(error)
}

fn corrupt(why: &str) -> Failure {
    Failure::new(Class::Corrupt, format!("the listing cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use uringload_core::store::Known;

    const S3: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>p</Prefix>
        <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>
        <Contents><Key>p/a &amp; b&#x9;</Key><LastModified>2026-11-29T00:18:44.000Z</LastModified>
        <ETag>&quot;e&quot;</ETag><Size>3</Size><Owner><ID>x</ID></Owner></Contents>
        <Contents><Key>p/folder/</Key><Size>0</Size></Contents><Contents><Key>p/full/</Key><Size>1</Size></Contents>
        <CommonPrefixes><Prefix>p/x/</Prefix></CommonPrefixes></ListBucketResult>"#;

    #[test]
    fn pages_of_s3() {
        let page = parse(S3.as_bytes()).unwrap();
        let found: Vec<_> = page.objects.iter().map(|object| (object.key.as_slice(), object.size)).collect();
        assert_eq!(found, [(b"p/a & b\t".as_slice(), 3), (b"p/full/", 1)]);
        assert_eq!((page.next.as_deref(), page.markers), (Some("a&b="), vec![b"p/folder/".to_vec()]));
        assert_eq!(page.prefixes, [b"p/x/"]);
        let mut head = Versions::default();
        head.take_etag("\"e\"");
        assert_eq!(page.objects[0].version, head.best(Some(3)), "as the head of an answer says it");
    }

    #[test]
    fn encoded_names_are_decoded() {
        let text = "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a+b%2B%00%ff/</Key><Size>1</Size>\
                    </Contents><CommonPrefixes><Prefix>x%2F</Prefix></CommonPrefixes></ListBucketResult>";
        let page = parse(text.as_bytes()).unwrap();
        assert_eq!(
            (page.objects[0].key.as_slice(), page.prefixes[0].as_slice()),
            (b"a b+\0\xff/".as_slice(), b"x/".as_slice())
        );
        let plain = text.replace("<EncodingType>url</EncodingType>", "");
        assert_eq!(parse(plain.as_bytes()).unwrap().objects[0].key, b"a+b%2B%00%ff/");
    }

    #[test]
    fn pages_of_azure() {
        let text = r#"<EnumerationResults><Blobs><Blob><Name Encoded="true">a%FFb+</Name><Properties>
            <Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified><Etag>0x8D</Etag>
            <Content-Length>9</Content-Length></Properties></Blob>
            <Blob><Name>d</Name><Properties><Content-Length>0</Content-Length>
            <ResourceType>directory</ResourceType></Properties></Blob>
            <BlobPrefix><Name>p/</Name></BlobPrefix></Blobs><NextMarker/></EnumerationResults>"#;
        let page = parse(text.as_bytes()).unwrap();
        assert_eq!((page.objects.len(), page.markers.len(), page.next, page.prefixes.len()), (1, 1, None, 1));
        assert_eq!((page.objects[0].key.as_slice(), page.objects[0].size), (b"a\xffb+".as_slice(), 9));
        assert_eq!(page.objects[0].version.unwrap().known_by(), Known::Etag);
    }

    #[test]
    fn what_is_cut_off_or_no_listing_is_told() {
        assert!(parse(b"<ListBucketResult/>").unwrap().objects.is_empty());
        let whole = S3.len();
        for end in (0..whole).filter(|&end| S3.is_char_boundary(end)) {
            let failure = parse(&S3.as_bytes()[..end]).unwrap_err();
            assert_eq!(failure.class(), Class::Corrupt, "{end}");
        }
        for text in [
            "",
            "<html><body/></html>",
            "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult>&nbsp;</ListBucketResult>",
            "<ListBucketResult><Contents><Size>-1</Size></Contents></ListBucketResult>",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().class(), Class::Corrupt, "{text}");
        }
        assert!(parse("<a>".repeat(99).as_bytes()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut draws = Draws::new(21);
        for _ in 0..3000 {
            let mut bytes = S3.as_bytes().to_vec();
            for _ in 0..draws.below(1..=6) {
                let at = draws.below(0..=bytes.len() - 1);
                bytes[at] = draws.next() as u8;
            }
            let _ = parse(&bytes);
        }
    }
}
